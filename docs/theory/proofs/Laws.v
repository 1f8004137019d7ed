(** Sums, laws and minima: what the other proofs use. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From OTM Require Import Statements.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Local Open Scope ring_scope.

(** x <= y because their difference is the non-negative e. *)
Lemma le_by (R : realFieldType) (e x y : R) : 0 <= e -> y - x = e -> x <= y.
Proof. by move=> he E; rewrite -subr_ge0 E. Qed.

Section Laws.
Variables (R : realFieldType) (A : finType).
Implicit Types (f g : A -> R) (H : {set A}).

Lemma mass_setT f : mass f [set: A] = total f.
Proof. by apply: eq_bigl => a; rewrite inE. Qed.

Lemma mass_set0 f : mass f set0 = 0.
Proof. by rewrite /mass big_set0. Qed.

Lemma total_mass f H : total f = mass f H + mass f (~: H).
Proof.
rewrite /total (bigID (mem H)) /=; congr (_ + _).
by apply: eq_bigl => a; rewrite inE.
Qed.

Lemma mass_ge0 f H : (forall a, 0 <= f a) -> 0 <= mass f H.
Proof. by move=> f0; apply: sumr_ge0. Qed.

Lemma mass_le f H H' : (forall a, 0 <= f a) -> H \subset H' -> mass f H <= mass f H'.
Proof.
move=> f0 sHH'; rewrite /mass [leRHS](big_setID H) /= (setIidPr sHH').
by rewrite ler_addl sumr_ge0.
Qed.

Lemma mass_le_total f H : (forall a, 0 <= f a) -> mass f H <= total f.
Proof. by move=> f0; rewrite -mass_setT; apply: mass_le => //; apply: subsetT. Qed.

Lemma le_mass f g H : (forall a, f a <= g a) -> mass f H <= mass g H.
Proof. by move=> le_fg; apply: ler_sum. Qed.

Lemma mass_if f H : mass f H = \sum_a (if a \in H then f a else 0).
Proof. by rewrite /mass big_mkcond. Qed.

Lemma sum0_eq f : (forall a, 0 <= f a) -> \sum_a f a = 0 -> forall a, f a = 0.
Proof.
move=> f0 /eqP; rewrite psumr_eq0 => [/allP h a|a _ //].
by apply/eqP/h; rewrite mem_index_enum.
Qed.

End Laws.
