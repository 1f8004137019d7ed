(** Part 4: the functions of Computable.v give the same on fractions of binary integers as on
    the field of rationals. *)

From Coq Require Import QArith.
From mathcomp Require Import all_ssreflect all_algebra ring ssrZ zify.
From OTM Require Import Computable Statements Certificates Computed.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Local Open Scope ring_scope.

(** A map between two kinds of numbers that keeps what Computable.v uses. *)
Section Morphism.
Variables (M N : numbers) (f : M -> N).
Hypotheses (f0 : f (zero M) = zero N) (f1 : f (one M) = one N).
Hypothesis fD : forall x y, f (add x y) = add (f x) (f y).
Hypothesis fB : forall x y, f (sub x y) = sub (f x) (f y).
Hypothesis fM : forall x y, f (mul x y) = mul (f x) (f y).
Hypothesis fV : forall x y, f (div x y) = div (f x) (f y).
Hypothesis fle : forall x y, le x y = le (f x) (f y).
Implicit Types (p q v a b : seq M) (s : seq nat).

Lemma m_less x y : less x y = less (f x) (f y).
Proof. by rewrite /less fle. Qed.

Lemma m_least x y : f (least x y) = least (f x) (f y).
Proof. by rewrite /least -fle; case: ifP. Qed.

Lemma m_power x k : f (power x k) = power (f x) k.
Proof. by elim: k => //= k IH; rewrite fM IH. Qed.

Lemma m_sum p : f (sum p) = sum (map f p).
Proof. by elim: p => //= x p IH; rewrite fD IH. Qed.

Lemma m_at p y : f (at_token p y) = at_token (map f p) y.
Proof.
rewrite /at_token; have [lt|ge] := ltnP y (size p); first by rewrite (nth_map (zero M)).
by rewrite !nth_default ?size_map.
Qed.

Lemma m_tokens p : tokens (map f p) = tokens p.
Proof. by rewrite /tokens size_map. Qed.

Lemma m_on p (g : nat -> M) (h : nat -> N) : (forall y, f (g y) = h y) ->
  map f (on_tokens p g) = on_tokens (map f p) h.
Proof. by move=> e; rewrite /on_tokens m_tokens -map_comp; apply: eq_map. Qed.

Lemma m_all_ge0 p : all (le (zero M)) p = all (le (zero N)) (map f p).
Proof. by rewrite all_map; apply: eq_all => x /=; rewrite fle f0. Qed.

Lemma m_is_law p : compute_is_law p = compute_is_law (map f p).
Proof. by rewrite /compute_is_law m_all_ge0 !fle m_sum f1. Qed.

Lemma m_coupled p q : map f (compute_coupled p q) = compute_coupled (map f p) (map f q).
Proof. by apply: m_on => y; rewrite m_least !m_at. Qed.

Lemma m_residual q v : map f (compute_residual q v) = compute_residual (map f q) (map f v).
Proof. by apply: m_on => y; rewrite fV !fB !m_at m_sum f1. Qed.

Lemma eq_in_order (r r' : rel nat) s : r =2 r' -> in_order r s = in_order r' s.
Proof.
move=> e; rewrite /in_order; elim: s => //= y s ->; elim: (foldr _ _ s) => //= z t IH.
by rewrite e IH.
Qed.

Lemma m_by_ratio p q : by_ratio p q =2 by_ratio (map f p) (map f q).
Proof. by move=> y z; rewrite /by_ratio fle !fM !m_at. Qed.

Lemma m_least_prefix k p q P Q s :
  f (least_prefix k p q P Q s) = least_prefix k (map f p) (map f q) (f P) (f Q) s.
Proof.
elim: s P Q => /= [|y s IH] P Q; first by rewrite fB fD m_power f1.
by rewrite m_least IH fB !fD m_power f1 !m_at.
Qed.

Lemma m_alpha k p q : f (compute_alpha k p q) = compute_alpha k (map f p) (map f q).
Proof.
rewrite /compute_alpha m_least_prefix f0 m_tokens (eq_in_order _ (m_by_ratio p q)).
congr (least_prefix _ _ _ _ _ (in_order _ _)); apply: eq_filter => y.
by rewrite m_less m_at f0.
Qed.

Lemma m_normalised a : map f (compute_normalised a) = compute_normalised (map f a).
Proof.
by rewrite /compute_normalised -!map_comp; apply: eq_map => x /=; rewrite fV m_sum.
Qed.

Lemma m_capped p q cap :
  map f (compute_capped p q cap) = compute_capped (map f p) (map f q) (f cap).
Proof. by apply: m_on => y; rewrite m_least fM !m_at. Qed.

Lemma m_at_set p H : f (at_set p H) = at_set (map f p) H.
Proof. by rewrite /at_set m_sum -map_comp; congr sum; apply: eq_map => y /=; apply: m_at. Qed.

Lemma m_levels k p v P V s :
  levels_hold k p v P V s = levels_hold k (map f p) (map f v) (f P) (f V) s.
Proof.
elim: s P V => /= [|y s IH] P V; rewrite fle fB m_power fB f1 //.
by rewrite IH !fB !m_at.
Qed.

Lemma m_certificate k a b H cap lower upper low high :
  compute_certificate k a b H cap lower upper low high =
  compute_certificate k (map f a) (map f b) H (f cap) (f lower) (f upper) (f low) (f high).
Proof.
rewrite /compute_certificate /compute_weights /compute_cut_holds /compute_mass_holds.
rewrite -!m_normalised -!m_capped -!m_sum -!m_all_ge0 !size_map !m_tokens.
rewrite -(eq_in_order _ (m_by_ratio a b)).
set p := compute_normalised a; set q := compute_normalised b.
set v := compute_capped p q cap.
rewrite -!m_at_set -!m_power -f1 -f0 -m_levels.
rewrite -!fD -!fB -!m_less -!fle.
do !congr (_ && _); congr (levels_hold _ _ _ _ _ (in_order _ _)).
by apply: eq_filter => y; rewrite !m_less fM f0 !m_at.
Qed.

Lemma m_beta p q rho : f (compute_beta p q rho) = compute_beta (map f p) (map f q) (f rho).
Proof. by rewrite /compute_beta m_sum; congr sum; apply: m_on => y; rewrite m_least fV !m_at. Qed.

Lemma m_passed k p q rho :
  f (compute_passed k p q rho) = compute_passed k (map f p) (map f q) (f rho).
Proof. by rewrite /compute_passed fB m_power fB m_beta f1. Qed.

Lemma m_excess k p q rho :
  f (compute_excess k p q rho) = compute_excess k (map f p) (map f q) (f rho).
Proof. by rewrite /compute_excess fB fM m_passed m_beta. Qed.

Lemma m_geometric x k : f (geometric_sum x k) = geometric_sum (f x) k.
Proof. by elim: k => //= k IH; rewrite fD IH m_power. Qed.

Lemma m_k_seq k p q rho :
  map f (compute_k_seq k p q rho) = compute_k_seq k (map f p) (map f q) (f rho).
Proof.
apply: m_on => y; rewrite fM m_geometric fB m_beta f1.
by rewrite m_least fV !m_at.
Qed.

End Morphism.

(** The value of a fraction is such a map. *)
Section Value.
Local Open Scope Q_scope.

Definition zr (z : Z) : rat := ((int_of_Z z)%:~R)%R.

Lemma zrD x y : zr (Z.add x y) = (zr x + zr y)%R.
Proof. by rewrite /zr -rmorphD /= -rmorphD. Qed.
Lemma zrM x y : zr (Z.mul x y) = (zr x * zr y)%R.
Proof. by rewrite /zr -rmorphM /= -rmorphM. Qed.
Lemma zrN x : zr (Z.opp x) = (- zr x)%R.
Proof. by rewrite /zr -rmorphN /= -rmorphN. Qed.

Lemma zr_pos d : (0 < zr (Z.pos d))%R.
Proof. by rewrite /zr ltr0z /= ltz_nat; apply/ssrnat.ltP/Pos2Nat.is_pos. Qed.

Lemma zr_neq0 d : zr (Z.pos d) != 0%R.
Proof. by rewrite gt_eqF // zr_pos. Qed.

Lemma zr_le x y : Z.leb x y = (zr x <= zr y)%R.
Proof.
by rewrite /zr ler_int; lia.
Qed.

Lemma valueE x : value x = (zr (Qnum x) / zr (Z.pos (Qden x)))%R.
Proof. by []. Qed.

Lemma value_Qeq x y : x == y -> value x = value y.
Proof.
rewrite /Qeq !valueE => e; have := congr1 zr e; rewrite !zrM => {}e.
by apply/eqP; rewrite eqr_div ?zr_neq0 //; apply/eqP; rewrite e mulrC.
Qed.

Lemma value_red x : value (Qred x) = value x.
Proof. exact/value_Qeq/Qred_correct. Qed.

Lemma value_add x y : value (x + y) = (value x + value y)%R.
Proof.
rewrite !valueE /= Pos2Z.inj_mul zrD !zrM; field.
by rewrite !zr_neq0.
Qed.

Lemma value_opp x : value (- x) = (- value x)%R.
Proof. by rewrite !valueE /= zrN mulNr. Qed.

Lemma value_sub x y : value (x - y) = (value x - value y)%R.
Proof. by rewrite /Qminus value_add value_opp. Qed.

Lemma value_mul x y : value (x * y) = (value x * value y)%R.
Proof.
rewrite !valueE /= Pos2Z.inj_mul !zrM; field.
by rewrite !zr_neq0.
Qed.

Lemma value_inv x : value (/ x) = ((value x)^-1)%R.
Proof.
case: x => [[|n|n] d]; rewrite !valueE /Qinv /=.
- by rewrite /zr /= !mul0r invr0.
- by rewrite invf_div.
- rewrite -[Z.neg d]/(Z.opp (Z.pos d)) -[Z.neg n]/(Z.opp (Z.pos n)) !zrN mulNr mulNr invrN invf_div //.
Qed.

Lemma value_div x y : value (x / y) = (value x / value y)%R.
Proof. by rewrite /Qdiv value_mul value_inv. Qed.

Lemma value_le x y : Qle_bool x y = (value x <= value y)%R.
Proof.
rewrite /Qle_bool zr_le !zrM !valueE.
by rewrite ler_pdivr_mulr ?zr_pos // mulrAC ler_pdivl_mulr ?zr_pos.
Qed.

End Value.

Section Bridge.
Let QQ := fractions.
Let RR := numbers_of rat_realFieldType.
Let f : QQ -> RR := value.

Let f0 : f (zero QQ) = zero RR. Proof. by []. Qed.
Let f1 : f (one QQ) = one RR. Proof. by []. Qed.
Let fD x y : f (add x y) = add (f x) (f y).
Proof. exact: etrans (value_red _) (value_add _ _). Qed.
Let fB x y : f (sub x y) = sub (f x) (f y).
Proof. exact: etrans (value_red _) (value_sub _ _). Qed.
Let fM x y : f (mul x y) = mul (f x) (f y).
Proof. exact: etrans (value_red _) (value_mul _ _). Qed.
Let fV x y : f (div x y) = div (f x) (f y).
Proof. exact: etrans (value_red _) (value_div _ _). Qed.
Let fle x y : le x y = le (f x) (f y). Proof. exact: value_le. Qed.

Theorem computed_in_fractions_proved : computed_in_fractions.
Proof.
split; first exact: (@m_is_law QQ RR f).
split=> [p q|q v|k p q|k a b H cap lower upper low high|k p q rho].
- exact: (@m_coupled QQ RR f).
- exact: (@m_residual QQ RR f).
- exact: (@m_alpha QQ RR f).
- exact: (@m_certificate QQ RR f).
- split; [exact: (@m_beta QQ RR f) | exact: (@m_passed QQ RR f) | exact: (@m_excess QQ RR f)
    | exact: (@m_k_seq QQ RR f)].
Qed.


Lemma values_law (p : seq QQ) : compute_is_law p -> lists_law (size p) (values p).
Proof.
move=> p_law; split; first by rewrite size_map.
by case: computed_in_fractions_proved => <-.
Qed.

Theorem fractions_alpha_proved : fractions_alpha.
Proof.
move=> k p q sizes p_law q_law.
have q_law' : lists_law (size p) (values q) by rewrite sizes; apply: values_law.
have := computed_alpha_proved k (values_law p_law) q_law'.
by case: computed_in_fractions_proved => _ [_ _ <-].
Qed.

Theorem fractions_certificate_proved : fractions_certificate.
Proof.
move=> k a b H cap lower upper low high ok.
have [_ [_ _ _ eq_checks _]] := computed_in_fractions_proved.
rewrite eq_checks in ok.
have [|s checks] := computed_certificate_proved (n := size a) _ ok; first by rewrite size_map.
have [alpha opt [ge le _ _]] := theorem_8_1_proved checks.
by exists alpha.
Qed.

End Bridge.
