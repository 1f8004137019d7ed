(** Part 6: no lossless rule for one chain accepts more than block verification. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From OTM Require Import Statements Laws Texts.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Local Open Scope ring_scope.

Section Best.
Variables (R : realFieldType) (T : finType) (t d : model R T).
Hypotheses (t_model : is_model t) (d_model : is_model d).

Let t0 c z : 0 <= t c z. Proof. by case: (t_model c). Qed.
Let d0 c z : 0 <= d c z. Proof. by case: (d_model c). Qed.

Lemma path_prob_rcons (m : model R T) c y z :
  path_prob m c (rcons y z) = path_prob m c y * m (c ++ y) z.
Proof.
elim: y c => [|x y IH] c /=; first by rewrite cats0 mulr1 mul1r.
by rewrite IH cat_rcons mulrA.
Qed.

Lemma begins_short c s y z : (size s <= size y)%N ->
  begins t c s (rcons y z) = begins t c s y * t (c ++ y) z.
Proof.
elim: y c s => [|x y IH] c [|u s] //=; rewrite ?cats0 ?mul1r ?mulr1 //.
  by move=> _; rewrite path_prob_rcons cat_rcons mulrA.
by move=> le; case: ifP => _; rewrite ?mul0r // IH // cat_rcons.
Qed.

Lemma begins_long c s y : (size y <= size s)%N ->
  begins t c s y = if take (size y) s == y then 1 else 0.
Proof.
elim: y c s => [|x y IH] c [|u s] //= le.
by rewrite eqseq_cons; case: eqP => //= _; rewrite IH.
Qed.

Lemma path_prob_ge0 c y : 0 <= path_prob t c y.
Proof. by elim: y c => [|x y IH] c /=; rewrite ?ler01 ?mulr_ge0. Qed.

Lemma begins_nonneg c s y : 0 <= begins t c s y.
Proof.
elim: y c s => [|x y IH] c [|u s] /=; rewrite ?ler01 ?mulr_ge0 ?path_prob_ge0 //.
by case: ifP.
Qed.

(** The weights of block verification, with one more token at the end. *)
Lemma block_accepts_rcons w c y z : 0 <= w -> block_accepts t d w c (rcons y z) =
  Num.min (block_accepts t d w c y * t (c ++ y) z) (path_prob d c (rcons y z)).
Proof.
elim: y w c => [|x y IH] w c w0 /=.
  rewrite cats0 mulr1; have [->|n0] := eqVneq (d c z) 0.
    by rewrite mul0r min_r // mulr_ge0.
  rewrite minr_pmulr // mulr1; congr Num.min.
  by rewrite mulrCA [d c z * _]mulrC divfK.
have w1 : 0 <= Num.min (w * (t c x / d c x)) 1 by rewrite le_minr ler01 andbT mulr_ge0 ?divr_ge0.
by rewrite (IH _ _ w1) minr_pmulr // cat_rcons; congr Num.min; apply: mulrA.
Qed.

Variables (n : nat) (law : outcome T n -> R).
Hypothesis ok : lossless_rule t d law.

Lemma accepts_le_block y : (size y <= n)%N ->
  accepts_at_least law y <= block_accepts t d 1 [::] y.
Proof.
have [law0 drafts_law out_law] := ok.
elim/last_ind: y => [|y z IH] le.
  apply: le_trans (_ : path_prob d [::] [::] <= _) => //; rewrite -(drafts_law [::]) //.
rewrite size_rcons in le.
have {}IH := IH (ltnW le).
have some B : \sum_(o : outcome T n) law o * begins t [::] (output o) B = path_prob t [::] B
  := out_law B.
rewrite block_accepts_rcons ?ler01 // le_minr; apply/andP; split; last first.
  rewrite -(drafts_law (rcons y z)) ?size_rcons //.
  rewrite /accepts_at_least size_rcons big_mkcond [leRHS]big_mkcond; apply: ler_sum => o _.
  by case: (_ == _); case: (_ <= _)%N; rewrite ?law0.
apply: (@le_trans _ _ (accepts_at_least law y * t ([::] ++ y) z)); last by rewrite ler_wpmul2r.
have out_size (o : outcome T n) : size (output o) = o.1.2.+1.
  by rewrite size_rcons size_takel // size_tuple -ltnS ltn_ord.
have out_take i (o : outcome T n) : (i <= o.1.2)%N -> take i (output o) = take i o.1.1.
  move=> io; have ot : (o.1.2 <= n)%N by rewrite -ltnS.
  by rewrite /output -cats1 takel_cat ?size_takel ?size_tuple // take_take.
have long : accepts_at_least law y
    = \sum_(o : outcome T n | (size y <= o.1.2)%N) law o * begins t [::] (output o) y.
  rewrite /accepts_at_least big_mkcondr; apply: eq_bigr => o io.
  rewrite begins_long ?out_size 1?leqW // out_take //.
  by case: ifP; rewrite ?mulr1 ?mulr0.
have both : \sum_(o : outcome T n | (size y <= o.1.2)%N) law o * begins t [::] (output o) (rcons y z)
    = \sum_(o : outcome T n | (size y <= o.1.2)%N) law o * begins t [::] (output o) y * t ([::] ++ y) z.
  have e1 := some (rcons y z); have e2 := some y.
  rewrite path_prob_rcons -e2 mulr_suml in e1.
  rewrite (bigID (fun o : outcome T n => (size y <= o.1.2)%N)) /= in e1.
  rewrite [RHS](bigID (fun o : outcome T n => (size y <= o.1.2)%N)) /= in e1.
  apply: (addIr _ (etrans e1 _)); congr (_ + _); apply: eq_bigr => o; rewrite -ltnNge => io.
  by rewrite begins_short ?mulrA // out_size.
rewrite long mulr_suml -both /accepts_at_least size_rcons.
rewrite big_mkcond [leRHS]big_mkcond; apply: ler_sum => o _.
have b0 : 0 <= begins t [::] (output o) (rcons y z) by apply: begins_nonneg.
case: (ltnP (size y) o.1.2) => [lt|ge] /=; last by case: ifP => // _; rewrite mulr_ge0.
have fits : (size (rcons y z) <= size (output o))%N by rewrite size_rcons out_size ltnW.
rewrite (ltnW lt) (begins_long _ fits) out_take ?size_rcons //.
by case: ifP; rewrite ?mulr1 ?mulr0.
Qed.
End Best.

Theorem theorem_12_2_proved : theorem_12_2.
Proof. by move=> R T t d n law t_model d_model ok y; apply: accepts_le_block. Qed.
