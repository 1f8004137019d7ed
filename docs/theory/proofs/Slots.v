(** Part 5: the law of the draft in the highest slot, that any table is lossless (Theorem 5.4),
    and that swaps realise the winning law (Theorems 5.2 and 5.3). *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From OTM Require Import Statements Laws Residual Cuts.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Local Open Scope ring_scope.

Section Winner.
Variables (R : realFieldType) (T : finType) (J k : nat).
Variables (p : T -> R) (kappa : T -> 'I_J -> R) (winner : {ffun 'I_k -> 'I_J} -> 'I_k).
Hypotheses (p_law : is_law p) (kappa_law : forall x, is_law (kappa x)) (top : highest winner).
Local Notation m x i := (p x * kappa x i).
Local Notation g := (slot_mass p kappa).
Local Notation v := (winner_law k p kappa).

Lemma m_ge0 x i : 0 <= m x i.
Proof. by apply: mulr_ge0; [case: p_law | case: (kappa_law x)]. Qed.

Lemma g_ge0 i : 0 <= g i.
Proof. by apply: sumr_ge0 => x _; apply: m_ge0. Qed.

(** A token without mass in a slot: where the slot has no mass. *)
Lemma mg x i : m x i / g i * g i = m x i.
Proof.
have [g0|gn] := eqVneq (g i) 0; last by rewrite divfK.
by rewrite g0 mulr0 (sum0_eq (fun x => m_ge0 x i) g0).
Qed.

(** Given the slots, the tokens are independent: one draft is y. *)
Lemma one_is s (i0 : 'I_k) y :
  \sum_(d : {ffun 'I_k -> T} | d i0 == y) \prod_i m (d i) (s i)
    = m y (s i0) / g (s i0) * \prod_i g (s i).
Proof.
pose F i z := if (i == i0) && (z != y) then 0 else m z (s i).
transitivity (\sum_(d : {ffun 'I_k -> T}) \prod_i F i (d i)).
  rewrite big_mkcond; apply: eq_bigr => d _; case: eqP => [e|/eqP n].
    by apply: eq_bigr => i _; rewrite /F; case: eqP => [->|]; rewrite ?e ?eqxx.
  by rewrite (bigD1 i0) //= {1}/F eqxx n mul0r.
rewrite -(bigA_distr_bigA F) (bigD1 i0) //= [in RHS](bigD1 i0) //= mulrA mg; congr (_ * _).
  rewrite (bigD1 y) //= big1 => [|z /negbTE n]; last by rewrite /F eqxx n.
  by rewrite addr0 /F !eqxx.
by apply: eq_bigr => i /negbTE n; apply: eq_bigr => z _; rewrite /F n.
Qed.

(** The highest slot. *)
Lemma highest_is i : \sum_(s : {ffun 'I_k -> 'I_J} | s (winner s) == i) \prod_j g (s j)
  = mass g [set j : 'I_J | (j <= i)%N] ^+ k - mass g [set j : 'I_J | (j < i)%N] ^+ k.
Proof.
rewrite -!iid_all_inside_proved /all_inside /iid.
have below (s : {ffun 'I_k -> 'I_J}) (a : pred 'I_J) :
    (drafts s \subset [set j | a j]) = [forall j, a (s j)].
  apply/subsetP/forallP => [h j|h _ /imsetP[j _ ->]]; last by rewrite inE.
  by have := h (s j); rewrite inE; apply; apply: imset_f.
rewrite [X in _ = X - _](bigID (fun s : {ffun 'I_k -> 'I_J} => s (winner s) == i)) /=.
rewrite (_ : \sum_(s : {ffun 'I_k -> 'I_J} | _ && (s (winner s) != i)) _ =
    \sum_(s : {ffun 'I_k -> 'I_J} | drafts s \subset [set j : 'I_J | (j < i)%N]) \prod_j g (s j)).
  rewrite addrK; apply: eq_bigl => s; rewrite (below _ (fun j => (j <= i)%N)).
  case: eqP => [e|]; last by rewrite andbF.
  by rewrite andbT; apply/esym/forallP => j; rewrite -e; apply: top.
apply: eq_bigl => s; rewrite (below _ (fun j => (j <= i)%N)) (below _ (fun j => (j < i)%N)).
apply/andP/forallP => [[/forallP le n] j|lt].
  apply: leq_ltn_trans (top s j) _; rewrite ltn_neqAle le andbT.
  by apply: contra n => /eqP e; apply/eqP/val_inj.
split; first by apply/forallP => j; apply: ltnW.
by apply: contraTneq (lt (winner s)) => ->; rewrite ltnn.
Qed.

Lemma wins_law y : accepted (wins p kappa winner) y = v y.
Proof.
transitivity (\sum_(s : {ffun 'I_k -> 'I_J}) m y (s (winner s)) / g (s (winner s)) * \prod_j g (s j)).
  rewrite -(eq_bigr _ (fun (s : {ffun 'I_k -> 'I_J}) _ => one_is s (winner s) y)) /accepted /wins.
  under eq_bigr => d _ do rewrite mulr_sumr big_mkcond.
  rewrite exchange_big; apply: eq_bigr => s _ /=; rewrite -big_mkcond.
  by apply: eq_bigr => d _; rewrite /iid -big_split.
rewrite (partition_big (fun s : {ffun 'I_k -> 'I_J} => s (winner s)) predT) //=.
apply: eq_bigr => i _; rewrite /slope -highest_is mulrA mulrAC mulr_sumr.
by apply: eq_bigr => s /eqP ->.
Qed.

Lemma wins_ge0 d y : 0 <= wins p kappa winner d y.
Proof.
apply: mulr_ge0; first by apply: prodr_ge0 => i _; case: p_law.
by apply: sumr_ge0 => s _; apply: prodr_ge0 => i _; case: (kappa_law (d i)).
Qed.

Lemma wins_row d : \sum_y wins p kappa winner d y = iid p d.
Proof.
rewrite -mulr_sumr /=; set S := \sum_y _.
suff -> : S = 1 by rewrite mulr1.
rewrite /S; under eq_bigr => y _ do rewrite big_mkcond.
rewrite exchange_big /= (eq_bigr (fun s : {ffun 'I_k -> 'I_J} => \prod_i kappa (d i) (s i))).
  by rewrite -(bigA_distr_bigA (fun i => kappa (d i))) big1 // => i _; case: (kappa_law (d i)).
by move=> s _; rewrite -big_mkcond (big_pred1 (d (winner s))) // => y; rewrite eq_sym.
Qed.

Lemma v_ge0 y : 0 <= v y.
Proof. by rewrite -wins_law; apply: sumr_ge0 => d _; apply: wins_ge0. Qed.

Lemma winner_drafted d y : y \notin drafts d -> wins p kappa winner d y = 0.
Proof.
move=> out; rewrite /wins big1 ?mulr0 // => s /eqP e; case/negP: out; rewrite -e.
exact: imset_f.
Qed.

Variable q : T -> R.
Hypothesis q_law : is_law q.
Local Notation f := (accept_winner p q kappa winner).

Lemma test01 y : 0 <= Num.min 1 (q y / v y) <= 1.
Proof.
have h : 0 <= q y / v y by apply: divr_ge0; [case: q_law | apply: v_ge0].
by rewrite le_minr ler01 h le_minl lexx.
Qed.

Lemma winner_accepts : accepts (@drafts T k) (iid p) f.
Proof.
split=> [d y|d y out|d]; first by rewrite mulr_ge0 ?wins_ge0 //; case/andP: (test01 y).
  by rewrite /accept_winner winner_drafted ?mul0r.
rewrite -wins_row; apply: ler_sum => y _; rewrite ler_pimulr ?wins_ge0 //.
by case/andP: (test01 y).
Qed.

Lemma winner_accepted y : accepted f y = Num.min (q y) (v y).
Proof.
rewrite /accepted -mulr_suml [\sum_d _]wins_law.
have [v0|vn] := eqVneq (v y) 0.
  by rewrite v0 mul0r; apply/esym/min_idPr; case: q_law.
have vpos : 0 < v y by rewrite lt_def vn v_ge0.
by rewrite minr_pmulr ?v_ge0 // mulr1 mulrC divfK // minC.
Qed.

End Winner.

Theorem theorem_5_4_proved : theorem_5_4.
Proof.
move=> R T J k p q kappa winner p_law q_law kappa_law top rule.
have below y : accepted (accept_winner p q kappa winner) y <= q y.
  by rewrite winner_accepted // le_minl lexx.
have [ok most _] := theorem_1_1_proved (iid_law k p_law) q_law
  (winner_accepts p_law kappa_law top q_law) below.
split=> // [y|]; first exact: wins_law.
apply: le_trans most; rewrite /overlap /total le_eqVlt; apply/orP; left; apply/eqP.
by apply: eq_bigr => y _; rewrite winner_accepted.
Qed.

Section Swaps.
Variables (R : realFieldType) (T : finType) (J k : nat).
Variables (p t : T -> R) (bin : T -> 'I_J) (delta : 'I_J -> 'I_J -> R).
Hypotheses (bins : pure k bin p t) (matched : matches k bin delta p t).
Local Notation g := (bin_mass bin p).
Local Notation W := (slope k g).
Local Notation lack := (lacks k bin p t).
Local Notation s := (swap k bin delta p).
Local Notation out := (moves k bin delta p t).
Local Notation delta_ge0 := (matches_ge0 matched).

Lemma g_neq0 j : g j != 0.
Proof. by rewrite gt_eqF // (pure_mass bins). Qed.

(** A bin that does not lack anything gets nothing, one without excess gives nothing. *)
Lemma poor_only i j : 0 < delta i j -> 0 < lack i.
Proof.
move=> d0; have : 0 < \sum_j' delta i j'.
  by rewrite (bigD1 j) //=; apply: ltr_paddr d0; apply: sumr_ge0 => j' _; apply: delta_ge0.
by rewrite (matches_poor matched) lt_maxr ltxx orbF.
Qed.

Lemma rich_only i j : 0 < delta i j -> lack j < 0.
Proof.
move=> d0; have : 0 < \sum_i' delta i' j.
  by rewrite (bigD1 i) //=; apply: ltr_paddr d0; apply: sumr_ge0 => i' _; apply: delta_ge0.
by rewrite (matches_rich matched) lt_maxr ltxx orbF oppr_gt0.
Qed.

(** W_i < t(x) somewhere in a poor bin, t(y) < W_j somewhere in a rich one. *)
Lemma between i j x y : 0 < delta i j -> bin x = i -> bin y = j ->
  [/\ W i <= t x, t x <= t y & t y <= W j].
Proof.
move=> d0 ex ey; subst i j; split.
- by apply: (pure_poor bins); apply: ltW; apply: poor_only d0.
- apply: (pure_ascends bins); rewrite ltnNge; apply: contraTN d0 => le.
  by rewrite (matches_up matched) ?ltxx.
- by apply: (pure_rich bins); apply: ltW; apply: rich_only d0.
Qed.

Lemma some_token j : exists x, bin x = j.
Proof.
have [x /eqP|none] := pickP (fun x => bin x == j); first by exists x.
by have := pure_mass bins j; rewrite /bin_mass big_pred0 // ltxx.
Qed.

Lemma slopes_differ i j : 0 < delta i j -> W i < W j.
Proof.
move=> d0; rewrite ltNge; apply/negP => le; have [y ey] := some_token j.
suff l0 : lack i = 0 by have := poor_only d0; rewrite l0 ltxx.
rewrite /lacks big1 // => x /eqP ex; have [a b c] := between d0 ex ey.
have -> : t x = W i by apply/le_anti; rewrite a andbT; apply: le_trans b (le_trans c le).
by rewrite subrr mulr0.
Qed.

(** The mass that two bins exchange is what the poor one gets, over the gain of a draft. *)
Lemma swap_gain i j : s i j * (W j - W i) = delta i j.
Proof.
have [d0|d0] := ltrP 0 (delta i j).
  by rewrite /swap divfK // subr_eq0 gt_eqF // slopes_differ.
by rewrite /swap (_ : delta i j = 0) ?mul0r //; apply/le_anti; rewrite d0 delta_ge0.
Qed.

Lemma no_delta i j : ~~ (0 < delta i j) -> delta i j = 0.
Proof. by rewrite -leNgt => d0; apply/le_anti; rewrite d0 delta_ge0. Qed.

Lemma swap_ge0 i j : 0 <= s i j.
Proof.
have [d0|/no_delta d0] := boolP (0 < delta i j); last by rewrite /swap d0 mul0r.
by rewrite divr_ge0 ?delta_ge0 // subr_ge0 ltW // slopes_differ.
Qed.

Lemma swaps_ge0 i j : 0 <= s i j + s j i.
Proof. by rewrite addr_ge0 ?swap_ge0. Qed.

(** Nothing is exchanged where nothing lacks. *)
Lemma no_swaps j i : lack j = 0 -> s j i + s i j = 0.
Proof.
move=> l0; have d1 : delta j i = 0.
  by apply: no_delta; apply/negP => /poor_only; rewrite l0 ltxx.
have d2 : delta i j = 0 by apply: no_delta; apply/negP => /rich_only; rewrite l0 ltxx.
by rewrite /swap d1 d2 !mul0r addr0.
Qed.

Lemma net j : \sum_i (s j i + s i j) * (W i - W j) = lack j.
Proof.
transitivity (\sum_i delta j i - \sum_i delta i j).
  rewrite -sumrB; apply: eq_bigr => i _; rewrite mulrDl swap_gain; congr (_ + _).
  by rewrite -opprB mulrN swap_gain.
rewrite (matches_poor matched) (matches_rich matched); have [l0|l0] := leP (lack j) 0.
  by rewrite max_l ?oppr_ge0 // sub0r opprK.
by rewrite max_r ?oppr_le0 ?ltW // subr0.
Qed.

Lemma at_slope x : lack (bin x) = 0 -> t x = W (bin x).
Proof. by move=> l0; apply/le_anti; rewrite (pure_poor bins) ?(pure_rich bins) ?l0. Qed.

(** What a token's draft wins by moving. *)
Lemma out_net x : \sum_i out x i * (W i - W (bin x)) = t x - W (bin x).
Proof.
have [l0|l0] := eqVneq (lack (bin x)) 0.
  rewrite at_slope // subrr big1 // => i _.
  by rewrite /moves no_swaps // mulr0 !mul0r.
transitivity (share k bin p t x / g (bin x) * \sum_i (s (bin x) i + s i (bin x)) * (W i - W (bin x))).
  by rewrite mulr_sumr; apply: eq_bigr => i _; rewrite /moves; ring.
by rewrite net /share; field; rewrite l0 g_neq0.
Qed.

Lemma bin_moves i j : \sum_(x | bin x == j) p x * out x i = s j i + s i j.
Proof.
have [l0|l0] := eqVneq (lack j) 0.
  by rewrite no_swaps // big1 // => x /eqP ex; rewrite /moves ex no_swaps // mulr0 mul0r mulr0.
transitivity ((s j i + s i j) / lack j * lack j); last by rewrite divfK.
rewrite [X in _ * X]/lacks mulr_sumr; apply: eq_bigr => x /eqP ex; rewrite /moves /share ex.
by field; rewrite l0 g_neq0.
Qed.

Lemma share_abs x : share k bin p t x = g (bin x) * (`|t x - W (bin x)| / `|lack (bin x)|).
Proof.
rewrite /share -mulrA -normf_div ger0_norm //.
have [l0|l0] := lerP 0 (lack (bin x)).
  by rewrite divr_ge0 // subr_ge0 (pure_poor bins).
by rewrite mulr_le0 // ?invr_le0 ?subr_le0 ?(pure_rich bins) ?ltW.
Qed.

Lemma move_le x i : `|t x - W (bin x)| * (s (bin x) i + s i (bin x)) <= delta (bin x) i + delta i (bin x).
Proof.
have [y ey] := some_token i; rewrite mulrDr; apply: ler_add.
  have [d0|/no_delta d0] := boolP (0 < delta (bin x) i); last by rewrite /swap d0 mul0r mulr0.
  have [a b c] := between d0 erefl ey; rewrite -swap_gain mulrC ler_wpmul2l ?swap_ge0 //.
  by rewrite ger0_norm ?subr_ge0 // ler_add2r; apply: le_trans c.
have [d0|/no_delta d0] := boolP (0 < delta i (bin x)); last by rewrite /swap d0 mul0r mulr0.
have [a b c] := between d0 ey erefl; rewrite -swap_gain mulrC ler_wpmul2l ?swap_ge0 //.
by rewrite ler0_norm ?subr_le0 // opprB ler_add2l ler_opp2; apply: le_trans b.
Qed.

Lemma out_ge0 x i : 0 <= out x i.
Proof.
rewrite /moves share_abs; apply: divr_ge0; last exact: ltW (pure_mass bins _).
by rewrite mulr_ge0 ?swaps_ge0 // mulr_ge0 ?divr_ge0 //; apply: ltW (pure_mass bins _).
Qed.

Lemma out_sum x : \sum_i out x i <= 1.
Proof.
have [l0|l0] := eqVneq (lack (bin x)) 0.
  by rewrite big1 ?ler01 // => i _; rewrite /moves no_swaps // mulr0 mul0r.
have l1 : 0 < `|lack (bin x)| by rewrite normr_gt0.
rewrite -(ler_pmul2r l1) mul1r mulr_suml.
apply: (@le_trans _ _ (\sum_i (delta (bin x) i + delta i (bin x)))).
  apply: ler_sum => i _; apply: le_trans (move_le x i); rewrite le_eqVlt; apply/orP; left; apply/eqP.
  by rewrite /moves share_abs; field; rewrite g_neq0 gt_eqF.
rewrite big_split /= (matches_poor matched) (matches_rich matched); have [le|ge] := leP (lack (bin x)) 0.
  by rewrite max_l ?oppr_ge0 // add0r ler0_norm.
by rewrite max_r ?addr0 ?gtr0_norm // oppr_le0 ltW.
Qed.

Lemma swapped_law x : is_law (swapped k bin delta p t x).
Proof.
split=> [i|]; last by rewrite /total big_split /= -big_mkcond big_pred1_eq addrCA subrr addr0.
rewrite addr_ge0 ?out_ge0 //; case: ifP => // _.
by rewrite subr_ge0 out_sum.
Qed.

Lemma swapped_mass i : slot_mass p (swapped k bin delta p t) i = g i.
Proof.
rewrite /slot_mass; under eq_bigr => x _ do rewrite mulrDr.
rewrite big_split (partition_big bin predT) //=.
under eq_bigr => j _ do rewrite bin_moves.
transitivity (\sum_j (s j i + s i j) + (g i - \sum_j (s i j + s j i))).
  congr (_ + _); rewrite -(eq_bigr _ (fun j _ => bin_moves j i)) exchange_big /=.
  rewrite [X in _ = X - _]/bin_mass -sumrB [RHS]big_mkcond.
  apply: eq_bigr => x _; rewrite eq_sym; case: ifP => _; last by rewrite mulr0.
  by rewrite mulrBr mulr1 mulr_sumr.
by under [X in _ - X]eq_bigr => j _ do rewrite addrC; rewrite addrC subrK.
Qed.

Lemma swapped_winner y : winner_law k p (swapped k bin delta p t) y = p y * t y.
Proof.
have slopes i : slope k (slot_mass p (swapped k bin delta p t)) i = W i.
  by rewrite /slope swapped_mass; congr ((_ ^+ _ - _ ^+ _) / _); apply: eq_bigr => j _; rewrite swapped_mass.
transitivity (p y * (\sum_i out y i * (W i - W (bin y)) + W (bin y))); last by rewrite out_net subrK.
rewrite /winner_law; under eq_bigr => i _ do rewrite slopes -mulrA.
rewrite -mulr_sumr; congr (_ * _); rewrite /swapped; under eq_bigr => i _ do rewrite mulrDl.
rewrite big_split /= [X in _ + X](bigD1 (bin y)) //= eqxx.
rewrite [X in _ + (_ + X)]big1 => [|i n]; last by rewrite (negbTE n) mul0r.
under [in RHS]eq_bigr => i _ do rewrite mulrBr.
rewrite sumrB -[X in _ = _ - X + _]mulr_suml addr0 mulrBl mul1r.
by rewrite [X in _ + X = _]addrC addrA.
Qed.

End Swaps.

Theorem theorem_5_2_proved : theorem_5_2.
Proof.
move=> R T J k p t bin delta bins matched; split; first exact: swapped_law.
  exact: swapped_mass.
exact: swapped_winner.
Qed.

Theorem theorem_5_3_proved : theorem_5_3.
Proof.
move=> R T J k p q t bin delta winner alpha p_law q_law bins matched top [_ best] enough rule.
have [_ ok most] := theorem_5_4_proved p_law q_law (swapped_law bins matched) top.
split=> //; apply/le_anti; rewrite best //=; apply: le_trans enough (le_trans _ most).
rewrite le_eqVlt; apply/orP; left; apply/eqP; apply: eq_bigr => y _.
by rewrite (swapped_winner bins matched).
Qed.
