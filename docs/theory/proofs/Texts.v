(** Part 6: chain verification, SpecTr's recursion, walk and keep and block verification are
    lossless. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From OTM Require Import Statements Laws.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Local Open Scope ring_scope.

Section Means.
Variables (R : realFieldType) (T : finType).

(** A sum over one token. *)
Lemma only (A : finType) (a : A) (F : A -> R) : \sum_b (if b == a then F b else 0) = F a.
Proof. by rewrite -big_mkcond big_pred1_eq. Qed.

(** What a mean is: it depends on the values only, and is linear. *)
Definition proper A (m : random R A) :=
  (forall f g, (forall a, f a = g a) -> m f = m g)
  /\ (forall x y f g, m (fun a => x * f a + y * g a) = x * m f + y * m g).

Lemma proper_ret A (a : A) : proper (ret a : random R A).
Proof. by split=> [f g e|x y f g]; [exact: e|]. Qed.

Lemma proper_bind A B (m : random R A) (k : A -> random R B) :
  proper m -> (forall a, proper (k a)) -> proper (bind m k).
Proof.
move=> [m_ext m_lin] kp; split=> [f g e|x y f g]; rewrite /bind.
  by apply: m_ext => a; apply: (proj1 (kp a)).
by rewrite -m_lin; apply: m_ext => a; apply: (proj2 (kp a)).
Qed.

Lemma proper_draw (A : finType) (law : A -> R) : proper (draw law).
Proof.
split=> [f g e|x y f g]; rewrite /draw; first by apply: eq_bigr => a _; rewrite e.
by rewrite !mulr_sumr -big_split; apply: eq_bigr => a _ /=; ring.
Qed.

Lemma proper_coin (h : R) : proper (coin h).
Proof. by split=> [f g e|x y f g]; rewrite /coin ?e //; ring. Qed.

Lemma proper_step (v : model R T) c : proper (step v c).
Proof.
split=> [f g e|x y f g]; rewrite /step.
  by rewrite e; congr (_ + _); apply: eq_bigr => a _; rewrite e.
rewrite !mulrDr !mulr_sumr [RHS]addrACA -big_split; congr (_ + _); last by ring.
by apply: eq_bigr => a _ /=; ring.
Qed.

Lemma proper_keep (t v : model R T) s c : proper (keep t v s c).
Proof.
apply: proper_bind; first exact: proper_coin.
by case; [apply: proper_bind => [|z]; [exact: proper_draw | exact: proper_ret] | exact: proper_ret].
Qed.

Lemma proper_walk (t v : model R T) n s c : proper (walk t v n s c).
Proof.
elim: n s c => [|n IH] s c /=.
  apply: proper_bind; first exact: proper_coin.
  by case; [apply: proper_bind => [|z]; [exact: proper_draw | exact: proper_ret] | exact: proper_ret].
apply: proper_bind; first exact: proper_step.
case=> [x|]; last exact: proper_keep.
apply: proper_bind => // -[y|]; [exact: proper_ret | exact: proper_keep].
Qed.

End Means.

Section Lossless.
Variables (R : realFieldType) (T : finType) (t : model R T).
Hypothesis t_model : is_model t.

Let t0 c z : 0 <= t c z. Proof. by case: (t_model c). Qed.
Let t1 c : total (t c) = 1. Proof. by case: (t_model c). Qed.

(** A token from t, continued by the target. *)
Lemma last_token c y : \sum_z t c z * begins t c [:: z] y = path_prob t c y.
Proof.
case: y => [|z y] /=; first by rewrite -[RHS](t1 c); apply: eq_bigr => z _; rewrite mulr1.
rewrite -(only z (fun x => t c x * path_prob t (rcons c z) y)).
by apply: eq_bigr => x _ /=; case: ifP; rewrite ?mulr0 //; case: y.
Qed.

Lemma begins0 c s : begins t c s [::] = 1.
Proof. by case: s. Qed.

Lemma begins1 c z x y : begins t c [:: x] (z :: y) =
  if x == z then path_prob t (rcons c z) y else 0.
Proof. by rewrite /=; case: ifP => //; case: y. Qed.

Section SpecTr.
Variables (d : model R T) (rule : forall (c : seq T) m, {ffun 'I_m -> T} -> T -> R).
Hypothesis rule_ok : forall c m, lossless (@iid R T m (d c)) (t c) (@rule c m).

Lemma proper_spectr n c m : proper (spectr t rule n c m).
Proof.
elim: n c m => [|n IH] c m /=; apply: proper_bind => [|o]; try exact: proper_draw.
  exact: proper_ret.
by case: ifP => _; [apply: proper_bind => // s; exact: proper_ret | exact: proper_ret].
Qed.

Lemma proper0 A (p : random R A) : proper p -> p (fun=> 0) = 0.
Proof.
case=> ext lin.
have e : p (fun=> 0 * 0 + 0 * 0) = 0 * p (fun=> 0) + 0 * p (fun=> 0) := lin 0 0 (fun=> 0) (fun=> 0).
rewrite (ext _ (fun=> 0 * 0 + 0 * 0)) => [|a]; last by rewrite mul0r addr0.
by rewrite e !mul0r addr0.
Qed.

Lemma spectr_step n c m F : spectr t rule n.+1 c m F =
  \sum_(o : {ffun 'I_m -> T} * T) rule c o.1 o.2 * (if o.2 \in drafts o.1
    then spectr t rule n (rcons c o.2) #|[set i | o.1 i == o.2]| (fun s => F (o.2 :: s))
    else F [:: o.2]).
Proof.
apply: eq_bigr => o _; congr (_ * _).
by case: ifP.
Qed.

Lemma spectr_lossless n c m : lossless_text t c (spectr t rule n c m).
Proof.
elim: n c m => [|n IH] c m y; first exact: last_token.
have [_ rows columns] := rule_ok c m.
pose C := if y is z :: y' then path_prob t (rcons c z) y' else 1.
pose V x := if y is z :: _ then (if x == z then C else 0) else 1.
have -> : spectr t rule n.+1 c m (fun s => begins t c s y)
  = \sum_(o : {ffun 'I_m -> T} * T) rule c o.1 o.2 * V o.2.
  rewrite spectr_step; apply: eq_bigr => -[dr x] _; congr (_ * _); rewrite /V /C.
  move: #|_| => k; case: ifP => _; last by case: y {C V} => [|z y]; rewrite ?begins1 //; case: eqP => // ->.
  case: y {C V} => [|z y].
    apply: etrans (IH (rcons c x) k [::]); apply: (proj1 (proper_spectr n _ _)) => s.
    by rewrite !begins0.
  case: (eqVneq (dr, x).2 z) => [/= ->|xz].
    by apply: etrans (IH (rcons c z) k y); apply: (proj1 (proper_spectr n _ _)) => s /=; rewrite eqxx.
  apply: etrans (proper0 (proper_spectr n (rcons c x) k)).
  by apply: (proj1 (proper_spectr n _ _)) => s /=; rewrite (negbTE xz).
rewrite -(pair_bigA _ (fun dr x => rule c dr x * V x)) exchange_big /=.
transitivity (\sum_x t c x * V x).
  by apply: eq_bigr => x _; rewrite -mulr_suml columns.
rewrite /V /C; case: y {C V} => [|z y] /=.
  by rewrite -[RHS](t1 c); apply: eq_bigr => x _; rewrite mulr1.
rewrite -(only z (fun x => t c x * path_prob t (rcons c z) y)).
by apply: eq_bigr => x _; case: ifP; rewrite ?mulr0.
Qed.

End SpecTr.

(** Walk and keep. *)
Section Walk.
Variable v : model R T.
Hypotheses (v0 : forall c z, 0 <= v c z) (v1 : forall c, total (v c) <= 1).

Section Node.
Variables (s : R) (c : seq T).
Hypothesis s01 : 0 <= s <= 1.
Let K := total (kept t v s c).

Lemma kept_le z : kept t v s c z <= s * t c z.
Proof. by rewrite le_minl lexx orbT. Qed.

Lemma K_le_s : K <= s.
Proof.
by rewrite -[leRHS]mulr1 -(t1 c) mulr_sumr; apply: ler_sum => z _; apply: kept_le.
Qed.

Lemma total_gap : \sum_z (s * t c z - kept t v s c z) = s - K.
Proof. by rewrite sumrB -mulr_sumr -/(total (t c)) t1 mulr1. Qed.

Lemma below_weight z : v c z * weight_below t v s c z = kept t v s c z.
Proof.
have [s0 _] := andP s01; rewrite /weight_below /kept minC.
have [e|n] := eqVneq (v c z) 0; first by rewrite e mul0r min_l // mulr_ge0.
by rewrite minr_pmulr // mulr1 mulrC divfK.
Qed.

Lemma below01 z : 0 <= weight_below t v s c z <= 1.
Proof.
have [s0 _] := andP s01.
by rewrite le_minr ler01 le_minl lexx orbT andbT divr_ge0 // mulr_ge0.
Qed.

(** The coin of a node, and what is drawn: exactly what is left. *)
Lemma keep_mean y : (1 - K) * certainly (keep t v s c) (fun out => begins t c out y)
  = \sum_z (s * t c z - kept t v s c z) * begins t c [:: z] y.
Proof.
have [_ s1] := andP s01; have Ks := K_le_s.
have gap0 z : 0 <= s * t c z - kept t v s c z by rewrite subr_ge0 kept_le.
rewrite /certainly /keep /bind /coin /draw /ret mulr0 addr0 /keep_prob -/K.
have [e|n] := eqVneq (s - K) 0.
  rewrite e mul0r mul0r mulr0 big1 // => z _.
  by rewrite (sum0_eq gap0) ?mul0r // total_gap.
have nK : 1 - K != 0.
  apply: contraNneq n => e; rewrite subr_eq0; apply/eqP/le_anti; rewrite Ks andbT.
  by rewrite (le_trans s1) // -subr_ge0 -opprB e oppr0.
rewrite mulrA [(1 - K) * _]mulrC divfK // mulr_sumr; apply: eq_bigr => z _.
by field.
Qed.

End Node.

Lemma walk_split n s c (F : seq T -> R) (C : R) :
  walk t v n s c (fun o => if o is Some u then F u else C)
  = walk t v n s c (fun o => if o is Some u then F u else 0)
    + C * (walk t v n s c (fun=> 1) - walk t v n s c (fun o => if o is Some u then 1 else 0)).
Proof.
have [ext lin] := proper_walk t v n s c.
have e := lin 1 (- 1) (fun=> 1) (fun o : option (seq T) => if o is Some _ then 1 else 0).
rewrite !mul1r mulN1r in e; rewrite -e.
have := lin 1 C (fun o : option (seq T) => if o is Some u then F u else 0)
  (fun o => 1 * 1 + - 1 * (if o is Some _ then 1 else 0)); rewrite !mul1r => <-.
by apply: ext => -[u|]; ring.
Qed.

Lemma flip_one (a : R) (law : T -> R) : total law = 1 \/ a = 0 ->
  a * (\sum_z law z * 1) + (1 - a) * 1 = 1.
Proof.
case=> [e|->]; last by rewrite mul0r add0r subr0 mulr1.
have -> : \sum_z law z * 1 = 1 by rewrite -[RHS]e; apply: eq_bigr => z _; rewrite mulr1.
by ring.
Qed.

Lemma keep_one s c : keep t v s c (fun=> 1) = 1.
Proof.
apply: flip_one; rewrite /keep_prob; have [e|n] := eqVneq (s - total (kept t v s c)) 0.
  by right; rewrite e mul0r.
by left; rewrite /total -mulr_suml total_gap divff.
Qed.

Lemma walk_one n s c : walk t v n s c (fun=> 1) = 1.
Proof.
elim: n s c => [|n IH] s c /=; first by apply: flip_one; left.
have e x : walk t v n (weight_below t v s c x) (rcons c x)
    (fun r => (if r is Some y then ret (Some (x :: y)) else keep t v s c) (fun=> 1)) = 1.
  rewrite -[RHS](IH (weight_below t v s c x) (rcons c x)).
  by apply: (proj1 (proper_walk t v n _ _)) => -[u|] //; apply: keep_one.
transitivity (\sum_x v c x * 1 + (1 - total (v c)) * 1).
  congr (_ + _ * _); last exact: keep_one.
  by apply: eq_bigr => x _; congr (_ * _); apply: e.
by rewrite -mulr_suml -/(total (v c)) !mulr1 addrC subrK.
Qed.

Lemma walk_step n s c F : certainly (walk t v n.+1 s c) F =
  \sum_x v c x * walk t v n (weight_below t v s c x) (rcons c x)
      (fun r => if r is Some u then F (x :: u) else certainly (keep t v s c) F)
  + (1 - total (v c)) * certainly (keep t v s c) F.
Proof.
congr (_ + _); apply: eq_bigr => x _; congr (_ * _).
by apply: (proj1 (proper_walk t v n _ _)) => -[u|].
Qed.

(** Theorem 14.1: with weight s the rule keeps something, and goes on with y, with
    probability s T(y). *)
Lemma walk_lossless n s c y : 0 <= s <= 1 ->
  certainly (walk t v n s c) (fun out => begins t c out y) = s * path_prob t c y.
Proof.
elim: n s c y => [|n IH] s c y s01.
  by rewrite -last_token /certainly /= /bind /coin /ret /= mulr0 addr0.
pose V x := begins t c [:: x] y.
set C := certainly (keep t v s c) (fun out => begins t c out y).
pose w := weight_below t v s c.
have w01 x : 0 <= w x <= 1 by apply: below01.
have some x : walk t v n (w x) (rcons c x) (fun o => if o is Some _ then 1 else 0) = w x.
  apply: etrans (etrans (IH _ (rcons c x) [::] (w01 x)) (mulr1 _)).
  by apply: (proj1 (proper_walk t v n _ _)) => -[u|] //; rewrite begins0.
have go_on x : walk t v n (w x) (rcons c x)
    (fun o => if o is Some u then begins t c (x :: u) y else 0) = w x * V x.
  rewrite /V; case: (y) => [|z y'].
    by rewrite begins0 mulr1 -[RHS]some; apply: (proj1 (proper_walk t v n _ _)) => -[u|].
  rewrite begins1; case: (eqVneq x z) => [->|xz].
    apply: etrans (IH _ (rcons c z) y' (w01 z)).
    by apply: (proj1 (proper_walk t v n _ _)) => -[u|] //=; rewrite eqxx.
  rewrite mulr0; apply: etrans (proper0 (proper_walk t v n (w x) (rcons c x))).
  by apply: (proj1 (proper_walk t v n _ _)) => -[u|] //=; rewrite (negbTE xz).
rewrite walk_step -/C.
have -> : \sum_x v c x * walk t v n (weight_below t v s c x) (rcons c x)
    (fun r => if r is Some u then begins t c (x :: u) y else C)
  = \sum_x (kept t v s c x * V x + C * (v c x - kept t v s c x)).
  apply: eq_bigr => x _; rewrite walk_split walk_one some go_on.
  rewrite -(below_weight c s01) -/w.
  by ring.
rewrite big_split -mulr_sumr sumrB -/(total (v c)) -/(total (kept t v s c)) /= -addrA.
have -> : C * (total (v c) - total (kept t v s c)) + (1 - total (v c)) * C
  = (1 - total (kept t v s c)) * C by ring.
rewrite keep_mean // -big_split -last_token mulr_sumr; apply: eq_bigr => x _.
by cbv beta; rewrite /V; move: (begins _ _ _ _) (kept _ _ _ _ _) => B k /=; ring.
Qed.

End Walk.
End Lossless.

Theorem theorem_12_4_proved : theorem_12_4.
Proof. by move=> R T t d rule n c m t_model ok; apply: spectr_lossless ok _ _ _. Qed.

Theorem theorem_14_1_proved : theorem_14_1.
Proof. by move=> R T t v n s c t_model v0 v1 s01 y; apply: walk_lossless. Qed.
