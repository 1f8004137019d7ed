(** Part 3: k-Seq is lossless for every division factor from rho* on (docs/theory/k-seq.md). *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From OTM Require Import Statements Laws Residual Cuts.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Local Open Scope ring_scope.

(** The probabilities that draft i is the first to pass add up to that of some draft passing. *)
Lemma first_pass (R : realFieldType) k (x : 'I_k -> R) :
  \sum_(i < k) (\prod_(j : 'I_k | (j < i)%N) (1 - x j)) * x i = 1 - \prod_j (1 - x j).
Proof.
elim: k x => [|k IH] x; first by rewrite !big_ord0 subrr.
rewrite big_ord_recl [X in _ = 1 - X]big_ord_recl big_pred0 ?mul1r //.
have -> : \sum_(i < k) (\prod_(j : 'I_k.+1 | (j < lift ord0 i)%N) (1 - x j)) * x (lift ord0 i)
  = (1 - x ord0) * \sum_(i < k) (\prod_(j : 'I_k | (j < i)%N) (1 - x (lift ord0 j)))
      * x (lift ord0 i).
  rewrite mulr_sumr; apply: eq_bigr => i _; rewrite mulrA; congr (_ * _).
  by rewrite big_mkcond big_ord_recl /= [in RHS]big_mkcond.
rewrite IH /=; move: (\prod_(i < k) _) => P.
by ring.
Qed.

Lemma geometric (R : realFieldType) k (b : R) :
  (\sum_(i < k) (1 - b) ^+ i) * b = 1 - (1 - b) ^+ k.
Proof.
elim: k => [|k IH]; first by rewrite big_ord0 mul0r expr0 subrr.
by rewrite big_ord_recr mulrDl IH exprS /=; ring.
Qed.

Section KSeq.
Variables (R : realFieldType) (T : finType) (p q : T -> R).
Hypotheses (p_law : is_law p) (q_law : is_law q).

Let p0 : forall y, 0 <= p y. Proof. by case: p_law. Qed.
Let q0 : forall y, 0 <= q y. Proof. by case: q_law. Qed.

Section Factor.
Variables (k : nat) (rho : R).
Hypothesis rho0 : 0 < rho.

Let pass := passes p q rho.
Let b := beta p q rho.
Let m y := Num.min (p y) (q y / rho).

Lemma passes01 y : 0 <= pass y <= 1.
Proof. by rewrite le_minr ler01 le_minl lexx divr_ge0 // mulr_ge0 // ltW. Qed.

(** A draft is y and passes. *)
Lemma draft_passes y : p y * pass y = m y.
Proof.
rewrite /pass /passes /m; have [->|n] := eqVneq (p y) 0.
  by rewrite mul0r min_l // divr_ge0 // ltW.
rewrite minr_pmulr // mulr1; congr Num.min.
by field; rewrite n gt_eqF.
Qed.

Lemma m_ge0 y : 0 <= m y.
Proof. by rewrite le_minr p0 divr_ge0 // ltW. Qed.

Lemma m_le y : rho * m y <= q y.
Proof.
rewrite /m minr_pmulr ?(ltW rho0) // le_minl; apply/orP; right.
by rewrite mulrC divfK // gt_eqF.
Qed.

Lemma beta01 : 0 <= b <= 1.
Proof.
have [_ p1] := p_law; apply/andP; split; first by apply: sumr_ge0 => y _; apply: m_ge0.
by rewrite -[leRHS]p1; apply: ler_sum => y _; rewrite le_minl lexx.
Qed.

Lemma k_seq_mass y : accepted (@k_seq R T k p q rho) y = (\sum_(i < k) (1 - b) ^+ i) * m y.
Proof.
pose w (i j : 'I_k) z := p z *
  (if (j < i)%N then 1 - pass z else if j == i then (if z == y then pass z else 0) else 1).
have w_sum i j : \sum_z w i j z =
    (if (j < i)%N then 1 - b else if j == i then m y else 1).
  have [_ p1] := p_law; rewrite /w; case: ifP => _.
    have -> : 1 - b = \sum_z (p z - m z) by rewrite sumrB [X in X - _]p1.
    apply: eq_bigr => z _.
    by rewrite mulrBr mulr1 draft_passes.
  case: ifP => _; last by rewrite -mulr_suml mulr1.
  rewrite (bigD1 y) //= eqxx big1 ?addr0 ?draft_passes // => z /negbTE->.
  by rewrite mulr0.
have w_prod i : \prod_j (\sum_z w i j z) = (1 - b) ^+ i * m y.
  rewrite (eq_bigr _ (fun j _ => w_sum i j)) (bigID (fun j : 'I_k => (j < i)%N)) /=.
  congr (_ * _).
    rewrite (eq_bigr (fun _ => 1 - b)) => [|j ->//].
    by rewrite -(big_ord_widen _ (fun _ => 1 - b) (ltnW (ltn_ord i))) prodr_const card_ord.
  rewrite (bigD1 i) ?ltnn //= eqxx big1 ?mulr1 // => j /andP[/negbTE-> /negbTE->] //.
rewrite /accepted /k_seq mulr_suml -(eq_bigr _ (fun i _ => w_prod i)).
under [in RHS]eq_bigr => i _ do rewrite bigA_distr_bigA.
rewrite exchange_big; apply: eq_bigr => d _ /=.
rewrite mulr_sumr big_mkcond; apply: eq_bigr => i _; rewrite /iid /w big_split /=.
have [e|n] := eqVneq (d i) y; last first.
  by rewrite [X in _ = _ * X](bigD1 i) //= ltnn eqxx (negbTE n) mul0r mulr0.
congr (_ * _); rewrite [RHS](bigID (fun j : 'I_k => (j < i)%N)) /=; congr (_ * _).
  by apply: eq_bigr => j ->.
rewrite (bigD1 i) ?ltnn //= eqxx e eqxx big1 ?mulr1 ?e // => j /andP[/negbTE-> /negbTE->] //.
Qed.

Lemma k_seq_accepts : accepts (@drafts T k) (iid p) (@k_seq R T k p q rho).
Proof.
have P0 d : 0 <= iid p d by apply: prodr_ge0.
have pass0 y : 0 <= passes p q rho y by case/andP: (passes01 y).
have fail0 y : 0 <= 1 - passes p q rho y by rewrite subr_ge0; case/andP: (passes01 y).
split=> [d y|d y out|d].
- by rewrite mulr_ge0 ?sumr_ge0 // => i _; rewrite mulr_ge0 ?prodr_ge0.
- rewrite /k_seq big_pred0 ?mulr0 // => i; apply: contraNF out => /eqP <-.
  exact: imset_f.
- rewrite /k_seq -mulr_sumr ler_pimulr // (exchange_big_dep predT) //=.
  have e (i : 'I_k) (c : R) : \sum_(y | d i == y) c = c.
    by rewrite (big_pred1 (d i)) // => y; rewrite eq_sym.
  rewrite (eq_bigr _ (fun i _ => e i _)).
  by rewrite (first_pass (fun i => passes p q rho (d i))) ler_subl_addr ler_addl prodr_ge0.
Qed.

Lemma k_seq_below : excess k p q rho <= 0 -> forall y, accepted (@k_seq R T k p q rho) y <= q y.
Proof.
rewrite /excess subr_le0 -/b -geometric => h y; rewrite k_seq_mass.
have /andP[b0 _] := beta01; have [e|n] := eqVneq b 0.
  by rewrite (sum0_eq m_ge0 e) mulr0.
have b_gt0 : 0 < b by rewrite lt0r n.
rewrite ler_pmul2r // in h; apply: le_trans (m_le y).
by rewrite ler_wpmul2r ?m_ge0.
Qed.

End Factor.

Lemma beta_decreases r s : 0 < r -> r <= s -> beta p q s <= beta p q r.
Proof.
move=> r0 rs; have s0 : 0 < s by apply: lt_le_trans rs.
apply: ler_sum => y _; rewrite le_minr !le_minl lexx /=; apply/orP; right.
by rewrite ler_wpmul2l // lef_pinv.
Qed.

Lemma capped_increases r s : 0 < r -> r <= s -> r * beta p q r <= s * beta p q s.
Proof.
move=> r0 rs; have s0 : 0 < s by apply: lt_le_trans rs.
rewrite !mulr_sumr; apply: ler_sum => y _.
have e t : 0 < t -> t * Num.min (p y) (q y / t) = Num.min (t * p y) (q y).
  by move=> t0; rewrite minr_pmulr ?(ltW t0) //; congr Num.min; rewrite mulrC divfK // gt_eqF.
by rewrite !e // le_minr !le_minl lexx orbT andbT ler_wpmul2r.
Qed.

Lemma excess_stays k r s : 0 < r -> r <= s -> excess k p q r <= 0 -> excess k p q s <= 0.
Proof.
move=> r0 rs; rewrite !subr_le0 => h.
have s0 : 0 < s by apply: lt_le_trans rs.
apply: (le_trans _ (le_trans h (capped_increases r0 rs))).
rewrite ler_add2l ler_opp2; have /andP[_ br] := beta01 r0; have /andP[_ bs] := beta01 s0.
by apply: ler_expn2r; rewrite ?nnegrE ?subr_ge0 // ler_add2l ler_opp2 beta_decreases.
Qed.

End KSeq.

Theorem theorem_6_1_mass_proved : theorem_6_1_mass.
Proof. by move=> R T k p q rho y p_law q_law rho0; apply: k_seq_mass. Qed.

Theorem theorem_6_2_proved : theorem_6_2.
Proof.
move=> R T k p q rho_star rho p_law q_law star1 h le f.
have star0 : 0 < rho_star by apply: lt_le_trans star1.
have rho0 : 0 < rho by apply: lt_le_trans le.
have f_ok := k_seq_accepts p_law q_law k rho0.
have f_below := k_seq_below p_law q_law rho0 (excess_stays p_law q_law star0 le h).
by split=> //; apply: accept_or_draw_lossless (iid_law k p_law) q_law f_ok f_below.
Qed.

Theorem theorem_6_2_factor_k_proved : theorem_6_2_factor_k.
Proof.
move=> R T k p q p_law q_law k0.
have k0' : 0 < (k%:R : R) by rewrite ltr0n.
split.
  have /andP[b0 b1] := beta01 p_law q_law (@ltr01 R).
  rewrite /excess mul1r; set b := beta p q 1 in b0 b1 *.
  have : (1 - b) ^+ k <= 1 - b.
    rewrite -(prednK k0) exprS ler_pimulr ?subr_ge0 // exprn_ile1 ?subr_ge0 //.
    by rewrite ler_subl_addr ler_addl.
  by move=> h; apply: (le_by (e := (1 - b) - (1 - b) ^+ k)); [rewrite subr_ge0 | ring].
have /andP[b0 b1] := beta01 p_law q_law k0'.
rewrite /excess subr_le0 -geometric ler_wpmul2r //.
rewrite -[X in _ <= X%:R]card_ord -sumr_const; apply: ler_sum => i _.
by rewrite exprn_ile1 ?subr_ge0 // ler_subl_addr ler_addl.
Qed.
