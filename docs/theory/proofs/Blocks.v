(** Part 6: chain and block verification are lossless; block verification is walk and keep for
    one chain. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From OTM Require Import Statements Laws Texts.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Local Open Scope ring_scope.

Section Blocks.
Variables (R : realFieldType) (T : finType) (t d : model R T).
Hypotheses (t_model : is_model t) (d_model : is_model d).

Let t0 c z : 0 <= t c z. Proof. by case: (t_model c). Qed.
Let d0 c z : 0 <= d c z. Proof. by case: (d_model c). Qed.
Let d1 c : total (d c) = 1. Proof. by case: (d_model c). Qed.

Lemma block_left_kept w c z : block_left t d w c z = w * t c z - kept t d w c z.
Proof.
rewrite /block_left /kept; case: leP => h; case: leP => h'; rewrite ?subrr //.
- by apply/eqP; rewrite eq_sym subr_eq0 eq_le -subr_le0 h h'.
- by move: h h'; rewrite subr_gt0 => h h'; have := lt_trans h h'; rewrite ltxx.
Qed.

Lemma block_is_walk n w c f : 0 <= w <= 1 -> block t d n w c f = walk t d n w c f.
Proof.
elim: n w c f => [|n IH] w c f w01 //.
have Z : total (block_left t d w c) = w - total (kept t d w c).
  by rewrite -(total_gap t_model); apply: eq_bigr => z _; apply: block_left_kept.
have keeps g : block_keep t d w c g = keep t d w c g.
  rewrite /block_keep /keep /keep_prob Z.
  have -> : w - total (kept t d w c) + 1 - w = 1 - total (kept t d w c) by ring.
  congr (_ * _ + _); apply: eq_bigr => z _; congr (_ * _).
  by rewrite block_left_kept.
transitivity (\sum_x d c x * walk t d n (weight_below t d w c x) (rcons c x)
    (fun r => (if r is Some y then ret (Some (x :: y)) else keep t d w c) f)).
  apply: eq_bigr => x _; congr (_ * _).
  have e : Num.min (w * (t c x / d c x)) 1 = weight_below t d w c x.
    by rewrite /weight_below mulrA.
  have w'01 : 0 <= weight_below t d w c x <= 1 by apply: below01.
  rewrite e; apply: etrans (IH _ _ _ w'01) _.
  by apply: (proj1 (proper_walk t d n _ _)) => -[u|] //; apply: keeps.
apply: etrans (esym (addr0 _)) _; congr (_ + _).
by apply: etrans (esym (mul0r (keep t d w c f))) _; congr (_ * _); rewrite d1 subrr.
Qed.

Lemma block_lossless n c : lossless_text t c (certainly (block t d n 1 c)).
Proof.
have w01 : 0 <= (1 : R) <= 1 by rewrite ler01 lexx.
move=> y; rewrite /certainly (block_is_walk _ _ _ w01).
by rewrite -[RHS]mul1r; exact: (walk_lossless t_model d0 n c y w01).
Qed.

Lemma walk_nonempty n w c (F G : seq T -> R) : (forall x u, F (x :: u) = G (x :: u)) ->
  certainly (walk t d n w c) F = certainly (walk t d n w c) G.
Proof.
move=> e; have ek : certainly (keep t d w c) F = certainly (keep t d w c) G.
  by congr (_ * _ + _); apply: eq_bigr => z _; rewrite /= /ret e.
case: n => [|n]; first by congr (_ * _ + _); apply: eq_bigr => z _; rewrite /= /ret e.
rewrite !walk_step ek; congr (_ + _); apply: eq_bigr => x _; congr (_ * _).
by apply: (proj1 (proper_walk t d n _ _)) => -[u|].
Qed.

Lemma walk_accepts n w c y : 0 <= w <= 1 -> (size y <= n)%N ->
  certainly (walk t d n w c) (accepts_drafts R y) = block_accepts t d w c y.
Proof.
elim: y n w c => [|z y IH] n w c w01 le.
  rewrite (@walk_nonempty n w c _ (fun s => begins t c s [::])) => [|x u].
    by rewrite (walk_lossless t_model d0) // mulr1.
  by rewrite begins0.
case: n le => // n le; rewrite walk_step d1 subrr mul0r addr0.
have -> : certainly (keep t d w c) (accepts_drafts R (z :: y)) = 0.
  by rewrite /certainly /keep /bind /coin /draw /ret /= mulr0 addr0 big1 ?mulr0 // => x _; rewrite mulr0.
rewrite (bigD1 z) //= big1 ?addr0 => [|x xz].
  rewrite mulrA -[Num.min _ 1]/(weight_below t d w c z); congr (_ * _).
  rewrite -(IH n) //; last exact: below01.
  by apply: (proj1 (proper_walk t d n _ _)) => -[u|] //; rewrite /accepts_drafts /= eqxx.
rewrite [X in _ * X](_ : _ = 0) ?mulr0 //.
apply: etrans (proper0 (proper_walk t d n (weight_below t d w c x) (rcons c x))).
apply: (proj1 (proper_walk t d n _ _)) => -[u|] //; rewrite /accepts_drafts /=.
by rewrite eq_sym (negbTE xz) andbF.
Qed.

(** Chain verification, one coin at a time. *)
Lemma proper_chain n c : proper (chain t d n c).
Proof.
elim: n c => [|n IH] c /=; apply: proper_bind => [|x]; try exact: proper_draw.
  exact: proper_ret.
apply: proper_bind; first exact: proper_coin.
case; first by apply: proper_bind => // s; exact: proper_ret.
by apply: proper_bind => [|z]; [exact: proper_draw | exact: proper_ret].
Qed.

Lemma chain_is_lossless n c : lossless_text t c (chain t d n c).
Proof.
elim: n c => [|n IH] c y; first exact: last_token.
pose V x := begins t c [:: x] y.
have after x : chain t d n (rcons c x) (fun s => begins t c (x :: s) y) = V x.
  rewrite /V; case: (y) => [|z y'].
    rewrite begins0 -[RHS](IH (rcons c x) [::]).
    by apply: (proj1 (proper_chain n _)) => s; rewrite !begins0.
  rewrite begins1; case: (eqVneq x z) => [->|xz].
    by rewrite -(IH (rcons c z) y'); apply: (proj1 (proper_chain n _)) => s /=; rewrite eqxx.
  rewrite -[RHS](proper0 (proper_chain n (rcons c x))).
  by apply: (proj1 (proper_chain n _)) => s /=; rewrite (negbTE xz).
pose m x := kept t d 1 c x; pose L := total (left_over t d c).
pose D := \sum_z left_over t d c z / L * V z.
have left_m z : left_over t d c z = 1 * t c z - m z.
  by rewrite -block_left_kept /block_left /left_over mul1r.
have L_m : L = 1 - total m.
  by rewrite -(total_gap t_model); apply: eq_bigr => z _; apply: left_m.
have accept x : d c x * Num.min 1 (t c x / d c x) = m x.
  rewrite /m /kept mul1r; have [->|n0] := eqVneq (d c x) 0.
    by rewrite mul0r min_l.
  by rewrite minr_pmulr // mulr1 mulrC divfK.
have -> : chain t d n.+1 c (fun s => begins t c s y) = \sum_x (m x * V x + D * (d c x - m x)).
  apply: eq_bigr => x _; rewrite -accept.
  transitivity (d c x * (Num.min 1 (t c x / d c x) * V x + (1 - Num.min 1 (t c x / d c x)) * D)).
    by congr (_ * (_ * _ + _)); apply: after.
  by ring.
rewrite big_split -mulr_sumr sumrB -/(total (d c)) -/(total m) d1 -L_m /=.
have -> : D * L = \sum_z left_over t d c z * V z.
  rewrite mulr_suml; have [L0|n0] := eqVneq L 0; last first.
    by apply: eq_bigr => z _; move: (V z) => B; field.
  rewrite [LHS]big1 => [|z _]; last by rewrite L0 mulr0.
  rewrite big1 // => z _; rewrite (sum0_eq _ L0) ?mul0r // => x.
  by rewrite /left_over le_maxr lexx orbT.
transitivity (\sum_x (m x * V x + left_over t d c x * V x)); first by rewrite big_split.
rewrite -(last_token t_model); apply: eq_bigr => x _; rewrite left_m.
by cbv beta; rewrite /V; move: (begins _ _ _ _) (m x) => B k /=; ring.
Qed.

End Blocks.

Theorem chain_lossless_proved : chain_lossless.
Proof. by move=> R T t d n c t_model d_model; apply: chain_is_lossless. Qed.

Theorem theorem_12_1_proved : theorem_12_1.
Proof.
move=> R T t d n c t_model d_model; split; first exact: block_lossless.
have w01 : 0 <= (1 : R) <= 1 by rewrite ler01 lexx.
move=> y le; rewrite -(walk_accepts t_model d_model c w01 le) /certainly.
exact: block_is_walk.
Qed.
