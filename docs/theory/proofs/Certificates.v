(** The closed form (Theorem 3.1), and what the checker of certificates tests proves what the
    certificate claims (Theorem 8.1). *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From OTM Require Import Statements Laws Residual Cuts Prefixes.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Local Open Scope ring_scope.

Lemma iid_cut (R : realFieldType) (T : finType) k (p u : T -> R) (H : {set T}) :
  cut (@drafts T k) (iid p) u H = mass u H + 1 - mass p H ^+ k.
Proof. by rewrite /cut iid_all_inside_proved. Qed.

Lemma prefix_all (R : realFieldType) (T : finType) (p : T -> R) (s : seq T) :
  is_law p -> (forall y, (y \in s) = (0 < p y)) -> mass p (prefix s (size s)) = 1.
Proof.
move=> [p0 <-] sP; rewrite mass_if; apply: eq_bigr => y _.
by rewrite inE take_size sP lt0r p0 andbT; case: eqP.
Qed.

Theorem theorem_3_1_proved : theorem_3_1.
Proof.
move=> R T k p q s p_law q_law s_uniq sP s_sorted.
have [p0 p1] := p_law; have [q0 q1] := q_law.
pose value (j : 'I_(size s).+1) := prefix_value k p q s j.
have [j _ least] := @arg_minP _ _ _ (ord0 : 'I_(size s).+1) predT value isT.
have jM i : (i <= size s)%N -> value j <= prefix_value k p q s i.
  by move=> le; apply: (least (Ordinal (n := (size s).+1) (m := i) le)).
exists j; first by rewrite -ltnS.
split=> //; have [H [[plan ok opt] le] leastH] :=
  theorem_2_1_optimum_proved (@drafts T k) (iid_law k p_law) q_law.
suff -> : prefix_value k p q s j = cut (@drafts T k) (iid p) q H by split=> //; exists plan.
apply/le_anti/andP; split; last first.
  by have := leastH (prefix s j); rewrite [leRHS]iid_cut.
rewrite iid_cut; pose c := \sum_(y <- s) ratio p q y.
have ratio0 y : 0 <= ratio p q y by rewrite divr_ge0.
apply: (@prefixes_enough R T p q k s c) => //.
- by move=> y; rewrite sP.
- move=> y ys; have py : 0 < p y by rewrite -sP.
  rewrite -ler_pdivr_mulr // /c (big_rem y) //= -/(ratio p q y) ler_addl.
  by apply: sumr_ge0.
- by move=> y; rewrite sP lt0r p0 andbT => /negPn/eqP ->; rewrite mulr0.
- rewrite (prefix_all p_law sP) subrr mulr0 addr0.
  by apply: le_trans (jM _ (leqnn _)) _; rewrite /prefix_value (prefix_all p_law sP) expr1n addrK.
Qed.

Section Checker.
Variables (R : realFieldType) (T : finType) (k : nat) (a b : T -> R) (H : {set T}).
Variables (cap lower upper low high : R) (s : seq T).
Hypothesis checks : certificate_checks k a b H cap lower upper low high s.

Let p := normalised a.
Let q := normalised b.
Let v := capped p q cap.

Lemma normalised_law (w : T -> R) : is_weights w -> is_law (normalised w).
Proof.
case=> w0 wt; split=> [y|]; first by rewrite divr_ge0 // ltW.
by rewrite /total -mulr_suml divff // gt_eqF.
Qed.

Let p_law : is_law p. Proof. by apply: normalised_law; case: checks => -[]. Qed.
Let q_law : is_law q. Proof. by apply: normalised_law; case: checks => -[]. Qed.

Lemma p_pos y : (0 < p y) = (0 < a y).
Proof. by case: checks => -[[_ a0] _] *; rewrite /p /normalised pmulr_lgt0 // invr_gt0. Qed.

Lemma capped_ge0 y : 0 <= v y.
Proof.
have [p0 _] := p_law; have [q0 _] := q_law.
by rewrite le_minr q0 mulr_ge0 //; case: checks.
Qed.

Lemma capped_at y : y \in s -> v y = q y.
Proof.
case: checks => _ _ _ _ _ [_ ->] _ _ _ /andP[_]; rewrite -/p -/q /capped lt_minl ltxx orbF.
by move=> lt; rewrite /v /capped min_l // ltW.
Qed.

(** Theorem 4.1: the sets that the checker looks at are enough. *)
Lemma capped_cut A : total v <= mass v A + 1 - mass p A ^+ k.
Proof.
have [p0 p1] := p_law; have [q0 _] := q_law.
have [_ _ _ _ cap0 [s_uniq sP] s_sorted acc _] := checks.
have compl j : all_but s j = ~: prefix s j by apply/setP=> y; rewrite !inE.
have low_v y : v y <= cap * p y by rewrite le_minl lexx orbT.
apply: (@prefixes_enough R T p v k s cap) => //.
- by move=> y; rewrite sP -p_pos => /andP[].
- apply: sub_in_sorted s_sorted; last exact: allss.
  move=> y z ys zs /= le; rewrite !capped_at // /q /p /normalised.
  have [[[_ at0] [_ bt0]] _ _ _ _ _ _ _ _] := checks.
  rewrite !mulf_div ler_pmul2r // invr_gt0 mulr_gt0 //.
- move=> y; rewrite sP -p_pos negb_and -leNgt -[in X in _ || X]leNgt => /orP[le|//].
  have -> : p y = 0 by apply/le_anti; rewrite le p0.
  by rewrite mulr0 capped_ge0.
- rewrite (total_mass v (prefix s (size s))) ler_add2l -p1 (total_mass p (prefix s (size s))).
  by rewrite addrAC subrr add0r /mass mulr_sumr; apply: ler_sum.
- move=> j le; have := acc j le; rewrite compl.
  rewrite (total_mass v (prefix s j)) -addrA ler_add2l; move/le_trans; apply.
  have -> : mass p (prefix s j) = 1 - mass p (~: prefix s j).
    by rewrite -p1 (total_mass p (prefix s j)) addrK.
  exact: lexx.
Qed.

Lemma capped_mass : is_accepted_mass (@drafts T k) (iid p) v.
Proof.
have P_law := iid_law k p_law; have [P0 _] := P_law.
apply/(theorem_2_2_proved _ P0 capped_ge0) => A.
rewrite -[A]setCK (missed _ P_law) iid_all_inside_proved setCK.
have := capped_cut (~: A); rewrite (total_mass v (~: A)) setCK -addrA ler_add2l.
by [].
Qed.

Theorem certificate_sound : exists2 alpha, is_optimum (@drafts T k) (iid p) q alpha
  & [/\ lower <= alpha, alpha <= upper, low <= alpha & alpha <= high].
Proof.
have P_law := iid_law k p_law.
have [G opt _] := theorem_2_1_optimum_proved (@drafts T k) P_law q_law.
exists (cut (@drafts T k) (iid p) q G) => //; set alpha := cut _ _ _ _ in opt *.
have [_ _ [lo hi] up _ _ _ _ below] := checks.
have vq y : v y <= q y by rewrite le_minl lexx.
have alpha_ge : lower <= alpha.
  have [plan ok ge] := rule_of_mass P_law q_law capped_mass vq.
  by apply: (le_trans below); apply: (le_trans ge); case: opt => _; apply.
have alpha_le A : alpha <= mass q A + 1 - mass p A ^+ k.
  have [[plan ok <-] _] := opt; rewrite -iid_cut.
  exact: lossless_bounded.
have alpha_up : alpha <= upper.
  case: up => [ge1|]; last exact: le_trans (alpha_le H).
  apply: le_trans (alpha_le set0) (le_trans _ ge1).
  by rewrite !mass_set0 add0r ler_subl_addr ler_addl exprn_ge0.
split=> //; [exact: le_trans alpha_ge | exact: le_trans hi].
Qed.

End Checker.

Theorem theorem_8_1_proved : theorem_8_1.
Proof. by move=> R T k a b H cap lower upper low high s; apply: certificate_sound. Qed.
