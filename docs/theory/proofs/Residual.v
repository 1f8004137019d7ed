(** Part 1: to accept drafts by any accepted mass and otherwise draw from the residual is
    lossless, and loses nothing; for one draft it is maximal coupling. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From OTM Require Import Statements Laws.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Local Open Scope ring_scope.

Section Residual.
Variables (R : realFieldType) (X T : finType) (drafted : X -> {set T}).
Variables (P : X -> R) (q : T -> R) (f : X -> T -> R).
Hypotheses (P_law : is_law P) (q_law : is_law q) (f_ok : accepts drafted P f).
Hypothesis below : forall y, accepted f y <= q y.

Let rejected x := P x - \sum_z f x z.
Let v := accepted f.

Lemma rejected_ge0 x : 0 <= rejected x.
Proof. by case: f_ok => _ _ h; rewrite subr_ge0. Qed.

(** The probability that no draft is accepted. *)
Lemma total_rejected : \sum_x rejected x = 1 - total v.
Proof.
case: P_law => _ P1; rewrite /rejected sumrB [X in X - _]P1; congr (_ - _).
by rewrite exchange_big.
Qed.

Lemma total_left : \sum_y (q y - v y) = 1 - total v.
Proof. by case: q_law => _ q1; rewrite sumrB [X in X - _]q1. Qed.

(** What is drawn from the residual, averaged over the drafts, is what is left of q. *)
Lemma drawn y : \sum_x rejected x * residual q f y = q y - v y.
Proof.
rewrite -mulr_suml total_rejected /residual -/v.
have [e0|n0] := eqVneq (1 - total v) 0; last by rewrite mulrC divfK.
rewrite e0 mul0r; apply/esym; apply: (sum0_eq (f := fun y => q y - v y)).
  by move=> z; rewrite subr_ge0.
by rewrite total_left.
Qed.

Lemma residual_ge0 y : 0 <= residual q f y.
Proof.
rewrite divr_ge0 ?subr_ge0 // -subr_ge0 -total_rejected.
by apply: sumr_ge0 => x _; apply: rejected_ge0.
Qed.

Lemma residual_law x : rejected x * (\sum_y residual q f y) = rejected x.
Proof.
rewrite /residual -mulr_suml -/v total_left.
have [e0|n0] := eqVneq (1 - total v) 0; last by rewrite divff // mulr1.
rewrite e0 mul0r mulr0; apply/esym; apply: (sum0_eq rejected_ge0).
by rewrite total_rejected.
Qed.

Lemma accept_or_draw_lossless : lossless P q (accept_or_draw P q f).
Proof.
have [f0 _ _] := f_ok; split=> [x y|x|y].
- by rewrite addr_ge0 // mulr_ge0 ?rejected_ge0 ?residual_ge0.
- by rewrite big_split /= -mulr_sumr residual_law addrC subrK.
- by rewrite big_split /= drawn addrC subrK.
Qed.

Lemma accepted_sum : total v = \sum_x \sum_(y in drafted x) f x y.
Proof.
have [_ out _] := f_ok; rewrite /total exchange_big /=; apply: eq_bigr => x _.
rewrite (bigID (mem (drafted x))) /= addrC big1 ?add0r // => y /out //.
Qed.

Lemma acceptance_split :
  acceptance drafted (accept_or_draw P q f)
  = total v + \sum_x \sum_(y in drafted x) rejected x * residual q f y.
Proof.
by rewrite accepted_sum -big_split; apply: eq_bigr => x _; rewrite -big_split.
Qed.

End Residual.

Theorem theorem_1_1_proved : theorem_1_1.
Proof.
move=> R X T drafted P q f P_law q_law f_ok below.
split.
- exact: accept_or_draw_lossless f_ok below.
- rewrite (acceptance_split _ f_ok) ler_addl; do 2!apply: sumr_ge0 => ? _.
  by rewrite mulr_ge0 ?(rejected_ge0 f_ok) ?(residual_ge0 P_law f_ok below).
- move=> miss; rewrite (acceptance_split _ f_ok) [X in _ + X]big1 ?addr0 // => x _.
  by apply: big1 => y /miss.
Qed.

Section Converse.
Variables (R : realFieldType) (X T : finType) (drafted : X -> {set T}).
Variables (P : X -> R) (q : T -> R) (plan : X -> T -> R).
Hypothesis ok : lossless P q plan.

Definition accepted_part x y := if y \in drafted x then plan x y else 0.

Lemma accepted_part_accepts : accepts drafted P accepted_part.
Proof.
have [plan0 planP _] := ok; rewrite /accepted_part; split=> [x y|x y|x].
- by case: ifP.
- by move/negbTE->.
- by rewrite -planP; apply: ler_sum => y _; case: ifP.
Qed.

Lemma accepted_part_below y : accepted accepted_part y <= q y.
Proof.
have [plan0 _ planq] := ok; rewrite -planq; apply: ler_sum => x _.
by rewrite /accepted_part; case: ifP.
Qed.

Lemma accepted_part_total : total (accepted accepted_part) = acceptance drafted plan.
Proof.
rewrite /total exchange_big; apply: eq_bigr => x _ /=.
by rewrite /accepted_part -big_mkcond.
Qed.

End Converse.

Theorem theorem_1_1_converse_proved : theorem_1_1_converse.
Proof.
move=> R X T drafted P q plan ok; exists (accepted (accepted_part drafted plan)).
  by exists (accepted_part drafted plan); first exact: accepted_part_accepts ok.
by split; [exact: accepted_part_below ok | exact: accepted_part_total].
Qed.

Section OneDraft.
Variables (R : realFieldType) (T : finType) (p q : T -> R).
Hypotheses (p_law : is_law p) (q_law : is_law q).

Let m y := Num.min (p y) (q y).

Lemma coupled_rows x : \sum_y coupled p q x y = m x.
Proof.
rewrite /coupled -big_mkcond (eq_bigl (pred1 x)) ?big_pred1_eq // => y.
by rewrite /= eq_sym.
Qed.

Lemma coupled_columns y : accepted (coupled p q) y = m y.
Proof.
rewrite /accepted /coupled -big_mkcond big_pred1_eq //.
Qed.

Lemma coupled_accepts : accepts (@one_draft T) p (coupled p q).
Proof.
have [p0 _] := p_law; have [q0 _] := q_law; split=> [x y|x y|x].
- by rewrite /coupled; case: eqP; rewrite // le_minr p0 q0.
- by rewrite /coupled inE eq_sym => /negbTE->.
- by rewrite coupled_rows le_minl lexx.
Qed.

Lemma coupled_below y : accepted (coupled p q) y <= q y.
Proof. by rewrite coupled_columns le_minl lexx orbT. Qed.

Lemma coupled_total : total (accepted (coupled p q)) = overlap p q.
Proof. by apply: eq_bigr => y _; apply: coupled_columns. Qed.

(** A draft that may be rejected has q < p, and the residual has none of it. *)
Lemma coupled_acceptance :
  acceptance (@one_draft T) (accept_or_draw p q (coupled p q)) = overlap p q.
Proof.
have [_ _ h] := theorem_1_1_proved p_law q_law coupled_accepts coupled_below.
rewrite h ?coupled_total // => x y; rewrite inE => /eqP ->{y}.
rewrite coupled_rows /residual coupled_columns /m.
by case: leP => _; rewrite subrr ?mul0r ?mulr0 ?mul0r ?mulr0.
Qed.

Lemma one_draft_bound plan :
  lossless p q plan -> acceptance (@one_draft T) plan <= overlap p q.
Proof.
case=> plan0 planp planq; apply: ler_sum => x _; rewrite big_set1 le_minr.
rewrite -planp -planq (bigD1 x) //= ler_addl sumr_ge0 //=.
by rewrite [leRHS](bigD1 x) //= ler_addl sumr_ge0.
Qed.

Lemma overlap_tv : overlap p q = 1 - total_variation p q.
Proof.
have [_ p1] := p_law; have [_ q1] := q_law.
have e y : `|p y - q y| = p y + q y - (Num.min (p y) (q y)) *+ 2.
  by case: leP => h; [rewrite distrC|]; rewrite ger0_norm ?subr_ge0 // 1?ltW //; ring.
rewrite /total_variation (eq_bigr _ (fun y _ => e y)) sumrB big_split /=.
rewrite -/(total p) -/(total q) p1 q1 -/(overlap p q).
rewrite sumrMnl -/(overlap p q).
have n2 : (2%:R : R) != 0 by rewrite pnatr_eq0.
by field.
Qed.

End OneDraft.

Theorem theorem_1_2_proved : theorem_1_2.
Proof.
move=> R T p q p_law q_law rule.
have ok : lossless p q rule.
  by apply: accept_or_draw_lossless (coupled_accepts _ _) _ => //; apply: coupled_below.
split=> //; last exact: overlap_tv.
- exact: coupled_acceptance.
- split; last exact: one_draft_bound.
  by exists rule => //; apply: coupled_acceptance.
Qed.
