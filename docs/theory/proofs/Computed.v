(** Part 4: over any ordered field the functions of Computable.v compute what the theorems are
    about. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From OTM Require Import Computable Statements Laws Residual Cuts Certificates KSeq.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Local Open Scope ring_scope.

Section Computed.
Variables (R : realFieldType) (n : nat).
Let NN := numbers_of R.
Implicit Types (p q v a b : seq R) (s : seq nat) (y : 'I_n).

Lemma c_sum p : sum (N := NN) p = \sum_(x <- p) x.
Proof. by elim: p => [|x p IH] /=; rewrite ?big_nil ?big_cons // -IH. Qed.

Lemma c_power (x : R) k : power (N := NN) x k = x ^+ k.
Proof. by elim: k => //= k ->; rewrite exprS. Qed.

Lemma c_least (x z : R) : least (N := NN) x z = Num.min x z.
Proof. by rewrite /least /=; case: leP. Qed.

Lemma c_less (x z : R) : less (N := NN) x z = (x < z).
Proof. by rewrite /less /= -ltNge. Qed.

Lemma c_at p y : at_token (N := NN) p y = entry p y. Proof. by []. Qed.

Section Tokens.
Variables (w : seq R) (w_size : size w = n).

Lemma on_tokens_entry (g : nat -> R) (h : 'I_n -> R) : (forall y, g y = h y) ->
  forall y, entry (on_tokens (N := NN) w g) y = h y.
Proof.
move=> e y; rewrite /entry /on_tokens /tokens w_size (nth_map 0%N) ?size_iota //.
by rewrite nth_iota // add0n.
Qed.

Lemma on_tokens_sum (g : nat -> R) (h : 'I_n -> R) : (forall y, g y = h y) ->
  sum (N := NN) (on_tokens (N := NN) w g) = total h.
Proof.
move=> e; rewrite c_sum big_map /tokens w_size -[n in iota _ n]subn0 big_mkord.
by apply: eq_bigr => y _; apply: e.
Qed.

Lemma sum_entry : sum (N := NN) w = total (entry (n := n) w).
Proof. by rewrite c_sum (big_nth 0) w_size big_mkord. Qed.

Lemma all_ge0 : all (le (zero NN)) w -> forall y, 0 <= entry w y.
Proof. by move=> /(all_nthP 0) h y; apply: h; rewrite w_size. Qed.

End Tokens.

Lemma c_law p : lists_law n p -> is_law (@entry R n p).
Proof.
case=> p_size /andP[/andP[p0 le1] ge1]; split; first exact: all_ge0.
by apply/le_anti; rewrite -(sum_entry p_size); apply/andP.
Qed.

Lemma c_residual q v (X : finType) (f : X -> 'I_n -> R) : size q = n -> size v = n ->
  (forall y, entry v y = accepted f y) ->
  forall y, entry (compute_residual (N := NN) q v) y = residual (entry q) f y.
Proof.
move=> q_size v_size e; apply: (on_tokens_entry q_size) => y.
by rewrite (sum_entry v_size) /residual -e /total (eq_bigr _ (fun y _ => e y)).
Qed.

Lemma c_coupled p q : lists_law n p -> lists_law n q ->
  let c := compute_coupled (N := NN) p q in
  [/\ size c = n, forall y : 'I_n, entry c y = accepted (coupled (entry p) (entry q)) y :> R,
      compute_overlap (N := NN) p q = overlap (@entry R n p) (entry q)
    & forall y : 'I_n, entry (compute_residual (N := NN) q c) y
        = residual (entry q) (coupled (@entry R n p) (entry q)) y].
Proof.
move=> [p_size _] [q_size _] c.
have c_size : size c = n by rewrite /c size_map size_iota.
have c_e (y : 'I_n) : entry c y = accepted (coupled (entry p) (entry q)) y.
  rewrite coupled_columns.
  by apply: (on_tokens_entry p_size (h := fun y => Num.min _ _)) => z; rewrite c_least.
split=> //; last exact: c_residual.
by apply: (on_tokens_sum p_size (h := fun y => Num.min _ _)) => y; rewrite c_least.
Qed.

(** Sorting by insertion. *)
Section Order.
Variable r : rel nat.

Lemma insert_perm (y : nat) s : perm_eq (insert r y s) (y :: s).
Proof.
elim: s => //= z s IH; case: ifP => // _.
apply: (perm_trans (y := [:: z, y & s])); first by rewrite perm_cons.
exact/permPl/(perm_catCA [:: z] [:: y] s).
Qed.

Lemma in_order_perm s : perm_eq (in_order r s) s.
Proof.
elim: s => //= y s IH; apply: perm_trans (insert_perm _ _) _.
by rewrite perm_cons.
Qed.

Hypothesis r_total : ssrbool.total r.

Lemma insert_sorted (y : nat) s : sorted r s -> sorted r (insert r y s).
Proof.
case: s => //= z s; case: ifP => [yz /= -> | /negbT yz]; first by rewrite yz.
have zy : r z y by have := r_total y z; rewrite (negbTE yz).
elim: s z zy {yz} => /= [|x s IH] z zy; first by rewrite zy.
move=> /andP[zx xs]; case: ifP => [yx|/negbT yx] /=; first by rewrite zy yx.
by rewrite zx IH //; have := r_total y x; rewrite (negbTE yx).
Qed.

Lemma in_order_sorted s : sorted r (in_order r s).
Proof. by elim: s => //= y s; apply: insert_sorted. Qed.

End Order.

(** Lists of tokens below n. *)
Lemma lift_tokens s : all (fun y : nat => (y < n)%N) s -> exists S : seq 'I_n, map val S = s.
Proof.
elim: s => [|y s IH] /=; first by exists [::].
by case/andP=> lt /IH[S <-]; exists (Ordinal lt :: S).
Qed.

Lemma mass_prefix (f : 'I_n -> R) S j : uniq S ->
  mass f (prefix S j) = \sum_(y <- take j S) f y.
Proof.
move=> S_uniq; rewrite big_uniq ?take_uniq //=; apply: eq_bigl => y.
by rewrite inE.
Qed.

Lemma least_prefix_spec k p q (S : seq 'I_n) P Q :
  let V j := Q + \sum_(y <- take j S) entry q y + 1
    - (P + \sum_(y <- take j S) entry p y) ^+ k in
  (exists2 j, (j <= size S)%N & least_prefix (N := NN) k p q P Q (map val S) = V j)
  /\ forall j, (j <= size S)%N -> least_prefix (N := NN) k p q P Q (map val S) <= V j.
Proof.
elim: S P Q => [|y S IH] P Q V.
  have e : least_prefix (N := NN) k p q P Q [::] = V 0%N.
    by rewrite /V /= c_power !big_nil !addr0.
  by split=> [|[|j]] //=; [exists 0%N | rewrite -e].
have [[j js e] least] := IH (P + entry p y) (Q + entry q y).
have shift i : V i.+1 = Q + entry q y + \sum_(z <- take i S) entry q z + 1
    - (P + entry p y + \sum_(z <- take i S) entry p z) ^+ k.
  by rewrite /V /= !big_cons !addrA.
have V0 : Q + 1 - P ^+ k = V 0%N by rewrite /V take0 !big_nil !addr0.
rewrite /= c_least c_power -[_ - _]/(Q + 1 - P ^+ k) V0; split.
  case: leP => _; first by exists 0%N.
  by exists j.+1 => //; rewrite shift.
move=> [|i] lt; first by rewrite le_minl lexx.
by rewrite le_minl shift least ?orbT.
Qed.

Lemma filter_below w (c : pred nat) : size w = n ->
  all (fun y : nat => (y < n)%N) [seq y <- tokens (N := NN) w | c y].
Proof.
move=> w_size; apply/allP=> y; rewrite mem_filter mem_iota add0n w_size.
by case/and3P.
Qed.

(** The tokens that are kept, in order, as a list over 'I_n. *)
Lemma ordered w (c : pred nat) (r : rel nat) : size w = n -> ssrbool.total r ->
  exists S : seq 'I_n, [/\ map val S = in_order r [seq y <- tokens (N := NN) w | c y],
    uniq S, forall y, (y \in S) = c y & sorted (fun y z : 'I_n => r y z) S].
Proof.
move=> w_size r_total; set s := [seq _ <- _ | _].
have [S e] : exists S : seq 'I_n, map val S = in_order r s.
  apply: lift_tokens; rewrite (perm_all _ (in_order_perm r s)).
  exact: filter_below.
exists S; split=> //.
- rewrite -(map_inj_uniq val_inj) e (perm_uniq (in_order_perm r s)).
  by rewrite filter_uniq ?iota_uniq.
- move=> y; rewrite -(mem_map val_inj) e (perm_mem (in_order_perm r s)).
  by rewrite /s mem_filter mem_iota w_size add0n /= ltn_ord andbT.
- by have := in_order_sorted r_total s; rewrite -e sorted_map.
Qed.

Lemma by_ratio_total p q : ssrbool.total (by_ratio (N := NN) p q).
Proof. by move=> y z; rewrite /by_ratio /=; apply: le_total. Qed.

Lemma c_alpha k p q : lists_law n p -> lists_law n q ->
  is_optimum (@drafts _ k) (iid (@entry R n p)) (entry q) (compute_alpha (N := NN) k p q).
Proof.
move=> p_law q_law; have [p_size _] := p_law.
have [S [e S_uniq S_mem S_sorted]] :=
  ordered (fun y : nat => less (zero NN) (at_token (N := NN) p y)) p_size (by_ratio_total p q).
have S_pos y : (y \in S) = (0 < entry p y) by rewrite S_mem c_less.
have [j js [opt least]] :=
  theorem_3_1_proved k (c_law p_law) (c_law q_law) S_uniq S_pos S_sorted.
have [[i is_ ei] least'] := least_prefix_spec k p q S 0 0.
have V m : 0 + \sum_(y <- take m S) entry q y + 1 - (0 + \sum_(y <- take m S) entry p y) ^+ k
    = prefix_value k (entry p) (entry q) S m.
  by rewrite /prefix_value !mass_prefix // !add0r.
rewrite /compute_alpha -e.
suff -> : least_prefix (N := NN) k p q (zero NN) (zero NN) (map val S)
  = prefix_value k (entry p) (entry q) S j by [].
apply/le_anti; rewrite [in X in _ && X]ei !V least // andbT -V.
exact: least'.
Qed.

(** Certificates. *)
Lemma c_normalised a y : size a = n ->
  entry (compute_normalised (N := NN) a) y = normalised (entry a) y.
Proof.
move=> a_size; rewrite /entry (nth_map 0) ?a_size //.
by rewrite (sum_entry a_size).
Qed.

Lemma c_weights a : size a = n -> compute_weights (N := NN) a -> is_weights (@entry R n a).
Proof.
move=> a_size /andP[a0]; rewrite c_less (sum_entry a_size) => pos; split=> //.
exact: all_ge0.
Qed.

Lemma c_at_set p H : uniq H -> all (fun y : nat => (y < n)%N) H ->
  at_set (N := NN) p H = mass (entry p) [set y : 'I_n | val y \in H].
Proof.
move=> H_uniq /lift_tokens[S e]; rewrite -e (map_inj_uniq val_inj) in H_uniq *.
rewrite /at_set c_sum -map_comp big_map /mass big_uniq //.
by apply: eq_bigl => y; rewrite inE (mem_map val_inj).
Qed.

Lemma c_levels k p v P V (S : seq 'I_n) :
  levels_hold (N := NN) k p v P V (map val S) -> forall j, (j <= size S)%N ->
  V - \sum_(y <- take j S) entry v y <= 1 - (1 - (P - \sum_(y <- take j S) entry p y)) ^+ k.
Proof.
elim: S P V => [|y S IH] P V /=; rewrite c_power => /andP[first rest] [|j] le;
  rewrite ?take0 ?big_nil ?subr0 //= !big_cons !opprD !addrA.
by have := IH _ _ rest j le; rewrite /= !opprD !addrA.
Qed.

Lemma c_certificate k a b H cap lower upper low high : size a = n ->
  compute_certificate (N := NN) k a b H cap lower upper low high ->
  exists S, certificate_checks k (@entry R n a) (entry b) [set y | val y \in H]
    cap lower upper low high S.
Proof.
move=> a_size; rewrite /compute_certificate; set p := compute_normalised (N := NN) a.
set q := compute_normalised (N := NN) b; set v := compute_capped (N := NN) p q cap.
case/andP=> /eqP sizes /andP[/andP[a_w b_w]] /andP[k0] /andP[interval].
case/andP=> /andP[H_uniq H_below] /andP[cut] /andP[cap0] /andP[levels lower_v].
rewrite a_size in H_below.
have b_size : size b = n by rewrite -sizes.
have p_size : size p = n by rewrite size_map.
have v_size : size v = n by rewrite size_map size_iota.
have p_e y : entry p y = normalised (entry a) y by apply: c_normalised.
have q_e y : entry q y = normalised (entry b) y by apply: c_normalised.
have v_e y : entry v y = capped (normalised (entry a)) (normalised (entry b)) cap y.
  by apply: on_tokens_entry p_size _ _ _ y => z; rewrite c_least !c_at p_e q_e.
have m_e (f g : 'I_n -> R) A : (forall y, f y = g y) -> mass f A = mass g A.
  by move=> e; apply: eq_bigr.
have p_w := c_weights a_size a_w; have q_w := c_weights b_size b_w.
have := ordered (fun y : nat => less (zero NN) (at_token (N := NN) a y)
  && less (N := NN) (at_token (N := NN) v y) (mul (n := NN) cap (at_token (N := NN) p y))) p_size (by_ratio_total a b).
case=> S [S_e S_uniq S_mem S_sorted]; exists S; split=> //.
- exact/andP.
- case/orP: cut => [|cut]; [by left | right].
  by rewrite /compute_cut_holds c_power !c_at_set // !(m_e _ _ _ p_e) !(m_e _ _ _ q_e) in cut.
- split=> // y; rewrite S_mem !c_less !c_at v_e -[mul _ _]/(cap * entry p y) p_e.
  by [].
- move: levels; rewrite /compute_mass_holds -/v -S_e => /c_levels h j /h.
  have [_ p1] := normalised_law p_w.
  have compl (f : 'I_n -> R) : total f - \sum_(y <- take j S) f y = mass f (all_but S j).
    rewrite -(mass_prefix f j S_uniq) (total_mass f (prefix S j)) addrAC subrr add0r.
    by congr mass; apply/setP=> y; rewrite !inE.
  have t1 : total (entry (n := n) p) = 1.
    by rewrite -p1 /total; apply: eq_bigr => y _; rewrite p_e.
  have cp := compl (entry p); rewrite t1 in cp.
  by rewrite (sum_entry v_size) compl cp (m_e _ _ _ v_e) (m_e _ _ _ p_e).
- apply: le_trans lower_v _; rewrite (sum_entry v_size) le_eqVlt; apply/orP; left; apply/eqP.
  by rewrite /total; apply: eq_bigr => y _; rewrite v_e.
Qed.

(** k-Seq. *)
Lemma c_geometric (x : R) k : geometric_sum (N := NN) x k = \sum_(i < k) x ^+ i.
Proof. by elim: k => [|k IH]; rewrite ?big_ord0 // big_ord_recr /= -IH c_power. Qed.

Lemma c_k_seq k p q rho : lists_law n p -> lists_law n q -> 0 < rho ->
  let v := compute_k_seq (N := NN) k p q rho in
  [/\ compute_beta (N := NN) p q rho = beta (@entry R n p) (entry q) rho,
      compute_excess (N := NN) k p q rho = excess k (@entry R n p) (entry q) rho,
      compute_passed (N := NN) k p q rho
        = total (accepted (@k_seq R _ k (@entry R n p) (entry q) rho)),
      forall y : 'I_n, entry v y = accepted (@k_seq R _ k (@entry R n p) (entry q) rho) y
    & forall y : 'I_n, entry (compute_residual (N := NN) q v) y
        = residual (entry q) (@k_seq R _ k (@entry R n p) (entry q) rho) y].
Proof.
move=> pl ql rho0 v; have [p_size _] := pl; have [q_size _] := ql.
have p_law := c_law pl; have q_law := c_law ql.
have v_size : size v = n by rewrite size_map size_iota.
have b_e : compute_beta (N := NN) p q rho = beta (@entry R n p) (entry q) rho.
  by apply: (on_tokens_sum p_size (h := fun y => Num.min _ _)) => y; rewrite c_least.
have v_e (y : 'I_n) : entry v y = accepted (@k_seq R _ k (@entry R n p) (entry q) rho) y.
  rewrite (k_seq_mass p_law q_law k rho0).
  apply: (on_tokens_entry p_size (h := fun y => _ * Num.min _ _)) => z.
  by rewrite c_least c_geometric b_e.
have passed : compute_passed (N := NN) k p q rho = 1 - (1 - beta (@entry R n p) (entry q) rho) ^+ k.
  by rewrite /compute_passed c_power b_e.
split=> //; last exact: c_residual.
- by rewrite /compute_excess passed b_e.
- rewrite passed /total (eq_bigr _ (fun y _ => k_seq_mass p_law q_law k rho0 y)).
  by rewrite -mulr_sumr -geometric.
Qed.

End Computed.

Theorem computed_law_proved : computed_law.
Proof. exact: c_law. Qed.
Theorem computed_coupled_proved : computed_coupled.
Proof. exact: c_coupled. Qed.
Theorem computed_alpha_proved : computed_alpha.
Proof. exact: c_alpha. Qed.
Theorem computed_certificate_proved : computed_certificate.
Proof. exact: c_certificate. Qed.
Theorem computed_k_seq_proved : computed_k_seq.
Proof. exact: c_k_seq. Qed.
