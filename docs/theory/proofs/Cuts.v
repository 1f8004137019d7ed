(** Part 2: the optimum is a minimum cut, for any joint law of the drafts (docs/theory/
    minimum-cut.md). *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From OTM Require Import Statements Laws Residual Hall.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Local Open Scope ring_scope.

Section Cuts.
Variables (R : realFieldType) (X T : finType) (drafted : X -> {set T}) (P : X -> R).
Hypothesis P_law : is_law P.
Implicit Types (u v : T -> R) (f : X -> T -> R) (H A : {set T}).

Let P0 : forall x, 0 <= P x. Proof. by case: P_law. Qed.
Let P1 : total P = 1. Proof. by case: P_law. Qed.

Lemma missed H : hits drafted P (~: H) = 1 - all_inside drafted P H.
Proof.
rewrite -P1 /total (bigID (fun x => drafted x \subset H)) /= addrAC subrr add0r.
by apply: eq_bigl => x; rewrite disjoints_subset setCK.
Qed.

Lemma cutE u H : cut drafted P u H = mass u H + hits drafted P (~: H).
Proof. by rewrite missed /cut addrA. Qed.

(** An accepted token is in H, or some draft is not. *)
Lemma bounded f u H :
  (forall x y, 0 <= f x y) -> (forall x, \sum_y f x y <= P x) ->
  (forall y, \sum_x f x y <= u y) ->
  \sum_x \sum_(y in drafted x) f x y <= cut drafted P u H.
Proof.
move=> f0 fP fu; rewrite cutE /hits.
apply: (@le_trans _ _ (\sum_x \sum_(y in H) f x y +
                       \sum_(x | ~~ [disjoint drafted x & ~: H]) P x)); last first.
  by rewrite ler_add2r exchange_big; apply: ler_sum.
rewrite [X in _ + X]big_mkcond -big_split; apply: ler_sum => x _ /=.
rewrite disjoints_subset setCK; case: ifPn => [_|/negPn sub].
  have : \sum_(y in drafted x) f x y <= P x.
    by apply: le_trans (fP x); apply: (mass_le_total (drafted x) (f0 x)).
  by move=> h; rewrite -[leLHS]add0r ler_add ?sumr_ge0.
by rewrite addr0; apply: mass_le.
Qed.

Lemma lossless_bounded q plan H :
  lossless P q plan -> acceptance drafted plan <= cut drafted P q H.
Proof.
case=> plan0 planP planq; apply: bounded => // [x|y]; first by rewrite planP.
by rewrite planq.
Qed.

Lemma accepted_mass_bounded v u H :
  is_accepted_mass drafted P v -> (forall y, v y <= u y) -> total v <= cut drafted P u H.
Proof.
case=> f f_ok fv vu; rewrite /total -(eq_bigr _ (fun y _ => fv y)).
rewrite [leLHS](accepted_sum f_ok); have [f0 _ fP] := f_ok.
by apply: bounded => // y; rewrite -/(accepted f y) fv.
Qed.

(** A largest accepted mass: Hall's theorem with one more outcome, which reaches all tokens
    and serves what the others cannot. *)
Section Attained.
Variable u : T -> R.
Hypothesis u0 : forall y, 0 <= u y.

Let best := [arg min_(H < setT | true) cut drafted P u H]%O.
Let m := cut drafted P u best.

Lemma best_least H : m <= cut drafted P u H.
Proof. by rewrite /m /best; case: arg_minP => // i _ h; apply: h. Qed.

Let drafted' (x : option X) := if x is Some x then drafted x else [set: T].
Let P' (x : option X) := if x is Some x then P x else total u - m.

Lemma big_option (F : option X -> R) : \sum_x F x = F None + \sum_x F (Some x).
Proof.
rewrite (bigD1 None) //=; congr (_ + _).
rewrite (reindex_omap Some id) /=; last by case.
by apply: eq_bigl => x; rewrite eqxx.
Qed.

Lemma spare_ge0 : 0 <= total u - m.
Proof.
rewrite subr_ge0 (le_trans (best_least setT)) // cutE mass_setT -[leRHS]addr0 ler_add2l.
rewrite /hits setCT big1 // => x.
by rewrite disjoints_subset setC0 subsetT.
Qed.

Lemma best_attained : exists v, [/\ is_accepted_mass drafted P v, forall y, v y <= u y
  & total v = m].
Proof.
have [x|A|f [f0 fS fP] fu] := @hall R _ T drafted' P' u _ u0.
- by case: x => [x|]; [apply: P0 | apply: spare_ge0].
- have [->|/set0Pn[y yA]] := eqVneq A set0.
    by rewrite mass_set0 mass_ge0 // => -[x|]; [apply: P0 | apply: spare_ge0].
  rewrite [leRHS]mass_if big_option inE /= -setI_eq0 setTI.
  have -> : A != set0 by apply/set0Pn; exists y.
  have -> : \sum_x (if Some x \in reach drafted' A then P x else 0) = hits drafted P A.
    by rewrite /hits [RHS]big_mkcond; apply: eq_bigr => x _; rewrite inE.
  have := best_least (~: A); rewrite cutE setCK (total_mass u A) => h.
  rewrite -(ler_add2r m); apply: (le_trans (ler_add (lexx _) h)).
  by rewrite le_eqVlt; apply/orP; left; apply/eqP; ring.
pose g x y := f (Some x) y.
have gu y : accepted g y = u y - f None y.
  by rewrite -fu /accepted big_option addrC addKr.
have g_ok : accepts drafted P g.
  split=> [x y|x y|x]; [exact: f0 | exact: (fS (Some x)) | exact: (fP (Some x))].
have g_le y : accepted g y <= u y by rewrite gu ler_subl_addr ler_addl f0.
have g_mass : is_accepted_mass drafted P (accepted g) by exists g.
exists (accepted g); split=> //; apply/le_anti/andP; split.
  exact: accepted_mass_bounded.
rewrite /total (eq_bigr _ (fun y _ => gu y)) sumrB -/(total u).
by rewrite ler_subr_addr addrC -ler_subr_addr; apply: (fP None).
Qed.

End Attained.
End Cuts.

Theorem theorem_2_1_bound_proved : theorem_2_1_bound.
Proof. by move=> R X T drafted P q plan H P_law; apply: lossless_bounded. Qed.

Theorem theorem_2_1_proved : theorem_2_1.
Proof.
move=> R X T drafted P u P_law u0; split.
  by move=> v H; apply: accepted_mass_bounded.
have [v [v_mass vu vm]] := best_attained drafted P_law u0.
exists v, [arg min_(H < setT | true) cut drafted P u H]%O; split=> // H'.
exact: best_least.
Qed.

(** An accepted mass below q makes a rule that accepts at least as much. *)
Lemma rule_of_mass (R : realFieldType) (X T : finType) (drafted : X -> {set T})
    (P : X -> R) (q v : T -> R) :
  is_law P -> is_law q -> is_accepted_mass drafted P v -> (forall y, v y <= q y) ->
  exists2 plan, lossless P q plan & total v <= acceptance drafted plan.
Proof.
move=> P_law q_law [f f_ok fv] vq.
have fq y : accepted f y <= q y by rewrite fv.
have [ok ge _] := theorem_1_1_proved P_law q_law f_ok fq.
exists (accept_or_draw P q f) => //; apply: le_trans ge.
by rewrite /total (eq_bigr _ (fun y _ => fv y)).
Qed.

Theorem theorem_2_1_optimum_proved : theorem_2_1_optimum.
Proof.
move=> R X T drafted P q P_law q_law; have [q0 _] := q_law.
have [_ [v [H [v_mass vq vH least]]]] := theorem_2_1_proved drafted P_law q0.
exists H => //; split; last by move=> plan ok; apply: lossless_bounded ok.
have [plan ok ge] := rule_of_mass P_law q_law v_mass vq.
exists plan => //; apply/le_anti; rewrite (lossless_bounded drafted P_law H ok) /=.
by rewrite -vH.
Qed.

Theorem theorem_2_2_proved : theorem_2_2.
Proof.
move=> R X T drafted P v P0 v0; split=> [[f [f0 fS fP] fv] A | h].
  rewrite /mass -(eq_bigr _ (fun y _ => fv y)) exchange_big /hits [leRHS]big_mkcond /=.
  apply: ler_sum => x _; case: ifPn => [_|/negPn dis].
    by apply: le_trans (fP x); apply: (mass_le_total A (f0 x)).
  rewrite big1 // => y yA; apply: fS; apply/negP=> yS.
  by move/disjoint_setI0/setP/(_ y): dis; rewrite !inE yS yA.
by apply: hall => // A; rewrite -hitsE.
Qed.

Theorem iid_all_inside_proved : iid_all_inside.
Proof.
move=> R T p k H; pose F (i : 'I_k) y := if y \in H then p y else 0.
transitivity (\prod_(i < k) \sum_y F i y); last first.
  rewrite (eq_bigr (fun _ => mass p H)) ?prodr_const ?card_ord // => i _.
  by rewrite /F mass_if.
rewrite bigA_distr_bigA /all_inside big_mkcond; apply: eq_bigr => d _ /=.
case: ifPn => [sub|].
  apply: eq_bigr => i _; rewrite /F (subsetP sub) //; exact: imset_f.
case/subsetPn=> _ /imsetP[i _ ->] out.
by rewrite (bigD1 i) //= {1}/F (negbTE out) mul0r.
Qed.

(** The i.i.d. law of k drafts is a law. *)
Lemma iid_law (R : realFieldType) (T : finType) (p : T -> R) k :
  is_law p -> is_law (@iid R T k p).
Proof.
case=> p0 p1; split=> [d|]; first exact: prodr_ge0.
rewrite /total /iid -(bigA_distr_bigA (fun _ => p)).
by apply: big1 => i _; apply: p1.
Qed.
