(** Part 2, the hard half of Theorem 2.2: supplies P(x) can meet demands v(y), each x serving
    the y in S(x), if no set of demands exceeds the supplies that reach it.  This is Hall's
    theorem for masses; the proof is by induction, as there is no compactness in R. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From OTM Require Import Statements Laws.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Local Open Scope ring_scope.

Section Hall.
Variables (R : realFieldType) (X T : finType) (S : X -> {set T}).
Implicit Types (P : X -> R) (v : T -> R) (f : X -> T -> R) (A B : {set T}).

(** The x that reach A; [hits S P A] is their mass. *)
Definition reach A : {set X} := [set x | ~~ [disjoint S x & A]].

Lemma hitsE P A : hits S P A = mass P (reach A).
Proof. by apply: eq_bigl => x; rewrite inE. Qed.

Lemma reachP x A : reflect (exists2 y, y \in S x & y \in A) (x \in reach A).
Proof.
rewrite inE -setI_eq0; apply: (iffP (set0Pn _)) => [[y /setIP[]]|[y h h']]; exists y => //.
exact/setIP.
Qed.

Lemma reachS A B : A \subset B -> reach A \subset reach B.
Proof.
move/subsetP=> sAB; apply/subsetP=> x /reachP[y yS /sAB yB]; apply/reachP; by exists y.
Qed.

Lemma reachU A B : reach (A :|: B) = reach A :|: reach B.
Proof.
apply/setP=> x; apply/reachP/setUP => [[y yS /setUP[]]|[]/reachP[y yS yA]].
- by move=> yA; left; apply/reachP; exists y.
- by move=> yA; right; apply/reachP; exists y.
- by exists y => //; rewrite inE yA.
- by exists y => //; rewrite inE yA orbT.
Qed.

Definition enough P v := forall A, mass v A <= mass P (reach A).
Definition served P v := exists2 f, accepts S P f & forall y, accepted f y = v y.

Lemma served0 P v : (forall x, 0 <= P x) -> (forall y, v y = 0) -> served P v.
Proof.
move=> P0 v0; exists (fun _ _ => 0); last by move=> y; rewrite v0; apply: big1.
by split=> // x; rewrite big1.
Qed.

(** What serves (P1, v1) and what serves (P2, v2) together serve the sums. *)
Lemma servedD P1 v1 P2 v2 P v :
  served P1 v1 -> served P2 v2 ->
  (forall x, P1 x + P2 x <= P x) -> (forall y, v1 y + v2 y = v y) -> served P v.
Proof.
move=> [f1 [f10 f1S f1P] f1v] [f2 [f20 f2S f2P] f2v] leP eqv.
exists (fun x y => f1 x y + f2 x y); last first.
  by move=> y; rewrite /accepted big_split /= -/(accepted f1 y) -/(accepted f2 y) f1v f2v eqv.
split=> [x y|x y out|x]; first exact: addr_ge0.
- by rewrite f1S // f2S // addr0.
- by rewrite big_split /= (le_trans _ (leP x)) // ler_add.
Qed.

(** One token y served by one outcome x. *)
Definition at_ (B : finType) (b : B) (e : R) (z : B) := if z == b then e else 0.

Lemma mass_at (B : finType) (b : B) e (H : {set B}) :
  mass (at_ b e) H = if b \in H then e else 0.
Proof.
rewrite mass_if (bigD1 b) //= big1 => [|z /negbTE zb]; rewrite /at_ ?eqxx ?addr0 //.
by rewrite zb; case: ifP.
Qed.

Lemma served_at x y e : y \in S x -> 0 <= e -> served (at_ x e) (at_ y e).
Proof.
move=> yS e0; exists (fun x' y' => if x' == x then at_ y e y' else 0); last first.
  by move=> y'; rewrite /accepted -big_mkcond big_pred1_eq.
split=> [x' y'|x' y' out|x'].
- by rewrite /at_; case: (x' == x); case: (y' == y).
- by rewrite /at_; case: eqP => // ex; case: eqP => // ey; rewrite ex ey yS in out.
- rewrite /at_; case: eqP => _; last by rewrite big1.
  by rewrite -big_mkcond big_pred1_eq.
Qed.

(** The part of a function on a set. *)
Definition on (B : finType) (g : B -> R) (H : {set B}) z := if z \in H then g z else 0.

Lemma on_ge0 (B : finType) (g : B -> R) H z : (forall z, 0 <= g z) -> 0 <= on g H z.
Proof. by rewrite /on; case: ifP. Qed.

Lemma onC (B : finType) (g : B -> R) H z : on g H z + on g (~: H) z = g z.
Proof. by rewrite /on inE; case: ifP; rewrite ?addr0 ?add0r. Qed.

Lemma mass_on (B : finType) (g : B -> R) H K : mass (on g H) K = mass g (H :&: K).
Proof.
rewrite !mass_if; apply: eq_bigr => z _; rewrite inE /on.
by case: (z \in H); case: (z \in K).
Qed.

Lemma mass_setU (B : finType) (g : B -> R) H K :
  mass g (H :|: K) = mass g H + mass g (~: H :&: K).
Proof.
rewrite !mass_if -big_split; apply: eq_bigr => z _; rewrite !inE /=.
by case: (z \in H); case: (z \in K); rewrite /= ?addr0 ?add0r.
Qed.

(** A tight set splits the problem in two. *)
Lemma enough_inside P v A :
  (forall x, 0 <= P x) -> enough P v -> enough (on P (reach A)) (on v A).
Proof.
move=> P0 h B; rewrite !mass_on (le_trans (h _)) //; apply: mass_le => //.
by rewrite subsetI !reachS ?subsetIl ?subsetIr.
Qed.

Lemma enough_outside P v A :
  enough P v -> mass v A = mass P (reach A) ->
  enough (on P (~: reach A)) (on v (~: A)).
Proof.
move=> h tight B; rewrite !mass_on; have := h (A :|: B).
by rewrite reachU !mass_setU tight ler_add2l.
Qed.

Definition support P v := (#|[set x | P x != 0%R]| + #|[set y | v y != 0%R]|)%N.

Lemma supportS P v P' v' :
  (forall x, P x = 0 -> P' x = 0) -> (forall y, v y = 0 -> v' y = 0) ->
  (support P' v' <= support P v)%N.
Proof.
move=> hP hv; apply: leq_add; apply: subset_leq_card; apply/subsetP=> z; rewrite !inE;
  apply: contraNN => /eqP; by [move/hP->|move/hv->].
Qed.

Lemma support_ltP P v P' v' x :
  (forall x, P x = 0 -> P' x = 0) -> (forall y, v y = 0 -> v' y = 0) ->
  P x != 0 -> P' x = 0 -> (support P' v' < support P v)%N.
Proof.
move=> hP hv Px P'x; rewrite /support -addSn; apply: leq_add.
  apply/proper_card/properP; split; last by exists x; rewrite !inE ?Px // P'x eqxx.
  by apply/subsetP=> z; rewrite !inE; apply: contraNN => /eqP/hP->.
apply/subset_leq_card/subsetP=> z; rewrite !inE.
by apply: contraNN => /eqP/hv->.
Qed.

Lemma support_ltv P v P' v' y :
  (forall x, P x = 0 -> P' x = 0) -> (forall y, v y = 0 -> v' y = 0) ->
  v y != 0 -> v' y = 0 -> (support P' v' < support P v)%N.
Proof.
move=> hP hv vy v'y; rewrite /support -addnS; apply: leq_add.
  by apply/subset_leq_card/subsetP=> z; rewrite !inE; apply: contraNN => /eqP/hP->.
apply/proper_card/properP; split; last by exists y; rewrite !inE ?vy // v'y eqxx.
by apply/subsetP=> z; rewrite !inE; apply: contraNN => /eqP/hv->.
Qed.

(** Take the mass e from the supply of x and the demand of y. *)
Definition take_ (B : finType) (g : B -> R) b e z := g z - at_ b e z.

Lemma mass_take (B : finType) (g : B -> R) b e H :
  mass (take_ g b e) H = mass g H - (if b \in H then e else 0).
Proof. by rewrite -mass_at /mass sumrB. Qed.

Lemma take_ge0 (B : finType) (g : B -> R) b e :
  (forall z, 0 <= g z) -> e <= g b -> forall z, 0 <= take_ g b e z.
Proof.
move=> g0 eg z; rewrite /take_ /at_; case: eqP => [->|_]; rewrite ?subr_ge0 ?subr0 //.
Qed.

Lemma take0 (B : finType) (g : B -> R) b e z :
  (forall z, 0 <= g z) -> 0 <= e -> e <= g b -> g z = 0 -> take_ g b e z = 0.
Proof.
move=> g0 e0 eg gz; rewrite /take_ /at_ gz; case: eqP => [ez|_]; rewrite ?subr0 //.
by apply/eqP; rewrite sub0r oppr_eq0 eq_le e0 andbT -gz ez.
Qed.

(** The sets that taking e can overdraw: x reaches them, and y is not in them. *)
Definition exposed x y A := (x \in reach A) && (y \notin A).
Definition slack P v A := mass P (reach A) - mass v A.

Lemma enough_take P v x y e :
  0 <= e -> y \in S x -> enough P v ->
  (forall A, exposed x y A -> e <= slack P v A) ->
  enough (take_ P x e) (take_ v y e).
Proof.
move=> e0 yS h room A; rewrite !mass_take.
have := h A; case: ifP => yA.
  have -> : x \in reach A by apply/reachP; exists y.
  by rewrite ler_add2r.
case: ifP => xA; rewrite ?subr0 // => _.
by rewrite ler_subr_addr -ler_subr_addl; apply: room; rewrite /exposed xA yA.
Qed.

Lemma served_take P v x y e :
  0 <= e -> y \in S x -> served (take_ P x e) (take_ v y e) -> served P v.
Proof.
move=> e0 yS h; apply: (servedD h (served_at yS e0)) => z; rewrite /take_ subrK //.
Qed.

Lemma served_split P v A :
  served (on P (reach A)) (on v A) -> served (on P (~: reach A)) (on v (~: A)) ->
  served P v.
Proof. by move=> h1 h2; apply: (servedD h1 h2) => z; rewrite onC. Qed.

Lemma hall_bounded n P v :
  (support P v < n)%N -> (forall x, 0 <= P x) -> (forall y, 0 <= v y) -> enough P v ->
  served P v.
Proof.
elim: n P v => // n IH P v; rewrite ltnS => bound P0 v0 h.
have [/existsP[y vy]|] := boolP [exists y, v y != 0]; last first.
  rewrite negb_exists => /forallP v_0; apply: served0 => // y.
  by apply/eqP; rewrite -[_ == _]negbK; apply: v_0.
have vy_gt0 : 0 < v y by rewrite lt0r vy v0.
have [x /reachP[y' yS /set1P ey] Px] : exists2 x, x \in reach [set y] & P x != 0.
  apply/exists_inP; rewrite -[X in is_true X]negbK negb_exists_in; apply/negP=> /forall_inP none.
  have := h [set y]; rewrite {1}/mass big_set1 /mass big1 ?leNgt ?vy_gt0 // => x xr.
  by apply/eqP; rewrite -[_ == _]negbK none.
rewrite {y'}ey in yS; pose e := Num.min (v y) (P x).
have e0 : 0 <= e by rewrite le_minr v0 P0.
have ev : e <= v y by rewrite le_minl lexx.
have eP : e <= P x by rewrite le_minl lexx orbT.
have [/existsP[A0 /andP[exp0 small0]]|] :=
  boolP [exists A, exposed x y A && (slack P v A < e)]; last first.
  rewrite negb_exists => /forallP room.
  apply: (served_take e0 yS); apply: IH.
  - apply: leq_trans bound; have [le|/ltW le] := leP (v y) (P x).
    + apply: (support_ltv (y := y)) => // [x' ?|y' ?|]; try exact: take0.
      by rewrite /take_ /at_ eqxx /e min_l // subrr.
    + apply: (support_ltP (x := x)) => // [x' ?|y' ?|]; try exact: take0.
      by rewrite /take_ /at_ eqxx /e min_r // subrr.
  - exact: take_ge0.
  - exact: take_ge0.
  - apply: enough_take => // A expA; have := room A; rewrite expA /=.
    by rewrite -leNgt.
have [A expA least] := @arg_minP _ _ _ A0 (exposed x y) (slack P v) exp0.
have {small0} small : slack P v A < e by apply: le_lt_trans small0; apply: least.
pose d := slack P v A.
have d0 : 0 <= d by rewrite subr_ge0.
have dv : d <= v y := le_trans (ltW small) ev.
have dP : d <= P x := le_trans (ltW small) eP.
pose P' := take_ P x d; pose v' := take_ v y d.
have P'0 : forall z, 0 <= P' z by apply: take_ge0.
have v'0 : forall z, 0 <= v' z by apply: take_ge0.
have P'S z : P z = 0 -> P' z = 0 by apply: take0.
have v'S z : v z = 0 -> v' z = 0 by apply: take0.
have h' : enough P' v' by apply: enough_take.
have /andP[xA yA] := expA.
have tight : mass v' A = mass P' (reach A).
  by rewrite !mass_take xA (negbTE yA) subr0 /d /slack opprB addrC subrK.
have v'y : v' y != 0.
  rewrite /v' /take_ /at_ eqxx subr_eq0 eq_sym lt_eqF //.
  exact: lt_le_trans small ev.
have P'x : P' x != 0.
  rewrite /P' /take_ /at_ eqxx subr_eq0 eq_sym lt_eqF //.
  exact: lt_le_trans small eP.
apply: (served_take d0 yS); rewrite -/P' -/v'; apply: (served_split (A := A)); apply: IH.
- apply: leq_trans bound; apply: (support_ltv (y := y)) => // [z|z|].
  + by rewrite /on => /P'S->; case: ifP.
  + by rewrite /on => /v'S->; case: ifP.
  + by rewrite /on (negbTE yA).
- by move=> z; apply: on_ge0.
- by move=> z; apply: on_ge0.
- exact: enough_inside.
- apply: leq_trans bound; apply: (support_ltP (x := x)) => // [z|z|].
  + by rewrite /on => /P'S->; case: ifP.
  + by rewrite /on => /v'S->; case: ifP.
  + by rewrite /on inE xA.
- by move=> z; apply: on_ge0.
- by move=> z; apply: on_ge0.
- exact: enough_outside.
Qed.

Theorem hall P v :
  (forall x, 0 <= P x) -> (forall y, 0 <= v y) -> enough P v -> served P v.
Proof. exact: hall_bounded (ltnSn _). Qed.

End Hall.
