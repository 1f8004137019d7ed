(** Theorem 3.1 and 4.1: among all cuts of i.i.d. drafts the prefixes in the order of u/p are
    enough, because x^k is convex. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From OTM Require Import Statements Laws Cuts.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Local Open Scope ring_scope.

Section Convex.
Variable R : realFieldType.
Implicit Types a b c x y z : R.

Lemma pow_convex k c x y : 0 <= c <= 1 -> 0 <= x -> 0 <= y ->
  (c * x + (1 - c) * y) ^+ k <= c * x ^+ k + (1 - c) * y ^+ k.
Proof.
move=> /andP[c0 c1] x0 y0; have d0 : 0 <= 1 - c by rewrite subr_ge0.
elim: k => [|k IH]; first by rewrite !expr0 !mulr1 addrC subrK.
have z0 : 0 <= c * x + (1 - c) * y by rewrite addr_ge0 ?mulr_ge0.
rewrite exprS; apply: (le_trans (ler_wpmul2l z0 IH)).
apply: (@le_by _ (c * (1 - c) * ((x - y) * (x ^+ k - y ^+ k)))); last by rewrite !exprS; ring.
apply: mulr_ge0; first exact: mulr_ge0.
have [le|/ltW le] := leP x y.
  by apply: mulr_le0; rewrite subr_le0 // ler_expn2r ?nnegrE.
by apply: mulr_ge0; rewrite subr_ge0 // ler_expn2r ?nnegrE.
Qed.

(** A line above x^k at two points is above it between them. *)
Lemma pow_below_line k a b x y z : 0 <= x -> x <= z -> z <= y ->
  x ^+ k <= a + b * x -> y ^+ k <= a + b * y -> z ^+ k <= a + b * z.
Proof.
move=> x0 xz zy hx hy; have [e|n] := eqVneq x y.
  by have -> : z = x by apply/le_anti; rewrite xz e zy.
have xy : 0 < y - x by rewrite subr_gt0 lt_neqAle n (le_trans xz).
have u : y - x != 0 by rewrite gt_eqF.
pose c := (y - z) / (y - x).
have c01 : 0 <= c <= 1.
  rewrite /c divr_ge0 ?subr_ge0 ?(le_trans xz) //=.
  by rewrite ler_pdivr_mulr // mul1r ler_add2l ler_opp2.
have -> : z = c * x + (1 - c) * y by rewrite /c; field.
have y0 : 0 <= y by rewrite (le_trans x0) // (le_trans xz).
apply: le_trans (pow_convex k c01 x0 y0) _.
case/andP: c01 => c0 c1.
have -> : a + b * (c * x + (1 - c) * y) = c * (a + b * x) + (1 - c) * (a + b * y) by ring.
by rewrite ler_add // ler_wpmul2l // subr_ge0.
Qed.

End Convex.

Section Prefixes.
Variables (R : realFieldType) (T : finType) (p u : T -> R) (k : nat) (s : seq T) (c M : R).

Let prefix j := prefix s j.

Hypotheses (p_law : is_law p) (s_uniq : uniq s) (s_pos : forall y, y \in s -> 0 < p y).
Hypothesis s_sorted : sorted (fun y z => u y * p z <= u z * p y) s.
Hypotheses (s_low : forall y, y \in s -> u y <= c * p y).
Hypotheses (s_high : forall y, y \notin s -> c * p y <= u y).
Hypothesis ends : M <= mass u (prefix (size s)) + c * (1 - mass p (prefix (size s))).
Hypothesis prefixes : forall j, (j <= size s)%N ->
  M <= mass u (prefix j) + 1 - mass p (prefix j) ^+ k.

Let p0 : forall y, 0 <= p y. Proof. by case: p_law. Qed.

(** Neyman and Pearson: no set of its p-mass has less u than one of smallest ratios. *)
Lemma least_mass t (B H : {set T}) :
  (forall z, z \in B -> u z <= t * p z) -> (forall z, z \notin B -> t * p z <= u z) ->
  mass u B + t * (mass p H - mass p B) <= mass u H.
Proof.
move=> inB outB; rewrite !mass_if mulrBr !mulr_sumr -sumrB -big_split; apply: ler_sum => z _ /=.
have [/inB|/outB] := boolP (z \in B); case: (z \in H) => le; rewrite ?mulr0 //.
- by rewrite subrr addr0.
- by rewrite sub0r subr_le0.
- by rewrite subr0 add0r.
- by rewrite subrr addr0.
Qed.

(** The line through the value of a prefix, with the ratio t of the next token as its slope. *)
Lemma under_line t j j' (H : {set T}) :
  (forall z, z \in prefix j -> u z <= t * p z) ->
  (forall z, z \notin prefix j -> t * p z <= u z) ->
  M <= mass u (prefix j) + 1 - mass p (prefix j) ^+ k ->
  mass p (prefix j) <= mass p H -> mass p H <= j' ->
  j' ^+ k <= mass u (prefix j) + t * (j' - mass p (prefix j)) + 1 - M ->
  M <= mass u H + 1 - mass p H ^+ k.
Proof.
move=> low high hj le1 le2 hj'; have := least_mass H low high.
set U := mass u (prefix j) in hj hj' *; set V := mass p (prefix j) in hj hj' le1 *.
have V0 : 0 <= V by apply: mass_ge0.
clearbody U V => le3.
have : mass p H ^+ k <= (U - t * V + 1 - M) + t * mass p H.
  apply: (pow_below_line V0 le1 le2).
    by apply: (le_by (e := U + 1 - V ^+ k - M)); [rewrite subr_ge0 | ring].
  by apply: (le_trans hj'); apply: (le_by (e := 0)) => //; ring.
move=> le4; apply: (le_by (e := (U - t * V + 1 - M + t * mass p H - mass p H ^+ k)
  + (mass u H - (U + t * (mass p H - V))))); last by ring.
by rewrite addr_ge0 ?subr_ge0.
Qed.

Definition ratio y := u y / p y.

Lemma ratioE y : y \in s -> u y = ratio y * p y.
Proof. by move/s_pos => h; rewrite /ratio divfK // gt_eqF. Qed.

Lemma sorted_ratio : sorted (fun y z => ratio y <= ratio z) s.
Proof.
apply: sub_in_sorted s_sorted; last exact: allss.
move=> y z /s_pos yp /s_pos zp /= le.
by rewrite /ratio ler_pdivr_mulr // mulrAC ler_pdivl_mulr.
Qed.

Lemma ratio_mono (x0 : T) i j : (i <= j)%N -> (j < size s)%N ->
  ratio (nth x0 s i) <= ratio (nth x0 s j).
Proof.
move=> ij js; have tr : transitive (fun y z => ratio y <= ratio z) by move=> ? ? ?; apply: le_trans.
have re : reflexive (fun y z => ratio y <= ratio z) by move=> ?; apply: lexx.
apply: (sorted_leq_nth tr re x0 sorted_ratio) => //; rewrite inE //; exact: leq_ltn_trans js.
Qed.

Lemma in_prefix y j : (j <= size s)%N -> y \in s ->
  (y \in prefix j) = (index y s < j)%N.
Proof. by move=> js ys; rewrite inE in_take_leq. Qed.

Lemma prefixS (x0 : T) j (g : T -> R) : (j < size s)%N ->
  mass g (prefix j.+1) = mass g (prefix j) + g (nth x0 s j).
Proof.
move=> js; rewrite /mass (bigD1 (nth x0 s j)) /=; last first.
  by rewrite inE (take_nth x0 js) mem_rcons mem_head.
rewrite addrC; congr (_ + _); apply: eq_bigl => y.
rewrite !inE (take_nth x0 js) mem_rcons inE; have [->|//] := eqVneq y.
rewrite in_take ?mem_nth // index_uniq // ltnn //.
by rewrite andbT.
Qed.

Theorem prefixes_enough H : M <= mass u H + 1 - mass p H ^+ k.
Proof.
have [_ p1] := p_law.
have [le|lt] := leP (mass p (prefix (size s))) (mass p H).
  apply: (@under_line c (size s) 1) => //.
  - by move=> z; rewrite inE take_size; apply: s_low.
  - by move=> z; rewrite inE take_size; apply: s_high.
  - by apply: prefixes.
  - by rewrite -p1; apply: mass_le_total.
  - rewrite expr1n; move: ends; set U := mass u _; set V := mass p _ => h.
    by apply: (le_by (e := U + c * (1 - V) - M)); [rewrite subr_ge0 | ring].
have ex : exists j, mass p H < mass p (prefix j) by exists (size s).
case: (ex_minnP ex) => -[|j] hj least.
  have : mass p (prefix 0) = 0 by rewrite /mass big_pred0 // => y; rewrite inE take0.
  by move=> e; rewrite e ltNge mass_ge0 in hj.
have js : (j < size s)%N by apply: least.
have [x0 _] : exists x0 : T, x0 \in s by case: (s) js => // x0 ? _; exists x0; rewrite mem_head.
set x := nth x0 s j; have xs : x \in s by rewrite mem_nth.
apply: (@under_line (ratio x) j (mass p (prefix j.+1))).
- move=> z; rewrite inE => zj; have zs := mem_take zj.
  rewrite (ratioE zs) ler_pmul2r ?s_pos //.
  rewrite -(nth_index x0 zs) ratio_mono //.
  by rewrite in_take_leq // in zj; [apply: ltnW | apply: ltnW].
- move=> z; have [zs|zs] := boolP (z \in s); last first.
    move=> _; apply: le_trans (s_high zs); apply: ler_wpmul2r => //.
    by rewrite /ratio ler_pdivr_mulr ?s_pos // s_low.
  rewrite inE in_take_leq // -?leqNgt; last exact: ltnW.
  move=> jz; rewrite (ratioE zs) ler_pmul2r ?s_pos //.
  by rewrite -(nth_index x0 zs) ratio_mono // index_mem.
- by apply: prefixes; apply: ltnW.
- by rewrite leNgt; apply/negP => /least; rewrite ltnn.
- exact: ltW.
- have := prefixes js; rewrite !(prefixS x0 _ js) -/x (ratioE xs).
  set U := mass u _; set V := mass p _; move: (_ ^+ k) => W h.
  by apply: (le_by (e := U + ratio x * p x + 1 - W - M)); [rewrite subr_ge0 | ring].
Qed.

End Prefixes.
