(** Instances of the theorems on texts, ordinary and degenerate ones, over the rationals. *)

From Coq Require Import QArith.
From mathcomp Require Import all_ssreflect all_algebra.
From OTM Require Import Computable Statements Laws Residual KSeq Computed Fractions Texts Blocks
  Best Examples.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Delimit Scope Q_scope with QQ.
Local Open Scope ring_scope.

(** Two models that differ, that are equal, and that never agree; no draft at all. *)
Definition always n (p : seq Q) : model _ (ordinal_finType n) := fun _ => law_of p.
Lemma always_model n (p : seq Q) : size p = n -> compute_is_law (N := fractions) p ->
  is_model (@always n p).
Proof. by move=> p_size p_law c; apply: law. Qed.

Example block_text : lossless_text (@always 2 q2) [::]
  (certainly (block (@always 2 q2) (@always 2 p2) 3%N 1 [::])).
Proof. by case: (theorem_12_1_proved 3%N [::] (@always_model 2 q2 erefl isT) (@always_model 2 p2 erefl isT)). Qed.
Example block_disjoint : lossless_text (@always 2 first) [::]
  (certainly (block (@always 2 first) (@always 2 second) 2%N 1 [::])).
Proof. by case: (theorem_12_1_proved 2%N [::] (@always_model 2 first erefl isT) (@always_model 2 second erefl isT)). Qed.
Example block_no_draft : lossless_text (@always 2 q2) [::]
  (certainly (block (@always 2 q2) (@always 2 p2) 0%N 1 [::])).
Proof. by case: (theorem_12_1_proved 0%N [::] (@always_model 2 q2 erefl isT) (@always_model 2 p2 erefl isT)). Qed.
Example chain_text : lossless_text (@always 2 q2) [::] (chain (@always 2 q2) (@always 2 p2) 3%N [::]).
Proof. exact: chain_lossless_proved (@always_model 2 q2 erefl isT) (@always_model 2 p2 erefl isT). Qed.
Example chain_equal : lossless_text (@always 2 p2) [::] (chain (@always 2 p2) (@always 2 p2) 2%N [::]).
Proof. exact: chain_lossless_proved (@always_model 2 p2 erefl isT) (@always_model 2 p2 erefl isT). Qed.

(** SpecTr's recursion over k-Seq with rho = 2, for three chains. *)
Definition k_seq_rule (c : seq 'I_2) m := accept_or_draw (@iid _ _ m (@law_of 2 p2)) (@law_of 2 q2)
  (@k_seq _ _ m (@law_of 2 p2) (@law_of 2 q2) (value 3%QQ)).
Lemma always_excess m : excess m (@law_of 2 p2) (@law_of 2 q2) (value 3%QQ) <= 0.
Proof.
have lp : lists_law 2 (values p2) by apply: values_law.
have lq : lists_law 2 (values q2) by apply: values_law.
have r0 : 0 < value 3%QQ by [].
have [b _ _ _ _] := computed_k_seq_proved m lp lq r0.
have e : value 3%QQ * beta (@law_of 2 p2) (@law_of 2 q2) (value 3%QQ) = 1.
  by rewrite /law_of -b; apply/eqP.
have /andP[_ b1] := beta01 (@law 2 p2 erefl isT) (@law 2 q2 erefl isT) r0.
rewrite /excess e -[leRHS](subrr 1) ler_add2r ler_subl_addr ler_addl exprn_ge0 // subr_ge0.
exact: b1.
Qed.
Example spectr_text : lossless_text (@always 2 q2) [::] (spectr (@always 2 q2) k_seq_rule 4%N [::] 3%N).
Proof.
apply: (theorem_12_4_proved (d := @always 2 p2)) => [|c m]; first exact: always_model.
have [_ _ ok] := theorem_6_2_proved (@law 2 p2 erefl isT) (@law 2 q2 erefl isT)
  (rho_star := value 3%QQ) isT (always_excess m) (lexx _).
exact: ok.
Qed.

(** Walk and keep: a walk that is the draft, one that never begins. *)
Example walk_text y : certainly (walk (@always 2 q2) (@always 2 p2) 3%N 1 [::])
  (fun out => begins (@always 2 q2) [::] out y) = path_prob (@always 2 q2) [::] y.
Proof.
rewrite -[RHS]mul1r; apply: theorem_14_1_proved => [c|c z|c|]; first exact: always_model.
- exact: (@law 2 p2 erefl isT).1.
- by have [_ p1] := @law 2 p2 erefl isT; rewrite [total _]p1 lexx.
by rewrite ler01 lexx.
Qed.
Example no_walk y : certainly (walk (@always 2 q2) (fun _ _ => 0) 2%N 1 [::])
  (fun out => begins (@always 2 q2) [::] out y) = path_prob (@always 2 q2) [::] y.
Proof.
rewrite -[RHS]mul1r; apply: theorem_14_1_proved => [c|//|c|]; first exact: always_model.
- by rewrite /total big1 ?ler01.
by rewrite ler01 lexx.
Qed.

(** A rule without drafts, the least one that [theorem_12_2] speaks of. *)
Definition no_drafts_law (o : outcome (ordinal_finType 2) 0) : rat := @law_of 2 q2 o.2.
Lemma no_drafts_sum (F : 'I_2 -> rat) :
  \sum_(o : outcome (ordinal_finType 2) 0) no_drafts_law o * F o.2 = \sum_z @law_of 2 q2 z * F z.
Proof.
rewrite -(pair_bigA _ (fun _ z => @law_of 2 q2 z * F z)) /=.
rewrite -(pair_bigA _ (fun _ _ => \sum_z @law_of 2 q2 z * F z)) /=.
rewrite (big_pred1 [tuple]) => [|x]; last by rewrite [x]tuple0; apply/esym/eqP.
by rewrite big_ord1.
Qed.
Example no_drafts : lossless_rule (@always 2 q2) (@always 2 p2) no_drafts_law.
Proof.
have [q0 q1] := @law 2 q2 erefl isT; split=> [o|[] // _|y]; first exact: q0.
  rewrite /= -[RHS]q1; under eq_bigr => o _ do rewrite -[no_drafts_law o]mulr1.
  rewrite (eq_bigl predT) => [|o]; last by rewrite take0 eqxx.
  by rewrite (no_drafts_sum (fun=> 1)); apply: eq_bigr => z _; rewrite mulr1.
rewrite -(last_token (@always_model 2 q2 erefl isT)) -no_drafts_sum.
apply: eq_bigr => o _; congr (_ * _); rewrite /ret /output.
by rewrite tuple0.
Qed.
Example no_drafts_bound : accepts_at_least no_drafts_law [::] <= 1.
Proof.
exact: (theorem_12_2_proved (@always_model 2 q2 erefl isT) (@always_model 2 p2 erefl isT) no_drafts).
Qed.

(** A rule that accepts its one draft always, where both models are the same: no other accepts
    more, and it attains the bound. *)
Definition all_drafts_law (o : outcome (ordinal_finType 2) 1) : rat :=
  if o.1.2 == 1 then @law_of 2 p2 (thead o.1.1) * @law_of 2 p2 o.2 else 0.
Lemma all_drafts_sum (F : 1.-tuple 'I_2 -> 'I_2 -> 'I_2 -> rat) :
  \sum_(o : outcome (ordinal_finType 2) 1) all_drafts_law o * F o.1.1 o.1.2 o.2
    = \sum_x \sum_z @law_of 2 p2 x * @law_of 2 p2 z * F [tuple x] 1 z.
Proof.
pose G x a z := (if a == 1 then @law_of 2 p2 (thead x) * @law_of 2 p2 z else 0) * F x a z.
rewrite -(pair_bigA _ (fun xa z => G xa.1 xa.2 z)) /= -(pair_bigA _ (fun x a => \sum_z G x a z)) /=.
rewrite (reindex (fun x : 'I_2 => [tuple x])) /=; last first.
  exists (fun s : 1.-tuple 'I_2 => thead s) => [x _|s _] /=; first by rewrite theadE.
  by apply: val_inj; case: s => -[|x [|]].
apply: eq_bigr => x _; rewrite big_ord_recl big_ord1 [X in X + _]big1 => [|z _]; last by rewrite /G mul0r.
rewrite add0r (_ : lift ord0 ord0 = 1); last by apply: val_inj.
by apply: eq_bigr => z _; rewrite /G eqxx theadE.
Qed.
Example all_drafts : lossless_rule (@always 2 p2) (@always 2 p2) all_drafts_law.
Proof.
have [p0 p1] := @law 2 p2 erefl isT.
split=> [o|y|y].
- by rewrite /all_drafts_law; case: ifP => // _; rewrite mulr_ge0.
- move=> le; rewrite big_mkcond /=.
  rewrite (eq_bigr (fun o : outcome _ 1 => all_drafts_law o * (take (size y) o.1.1 == y)%:R)); last first.
    by move=> o _; case: ifP => _; rewrite ?mulr1 ?mulr0.
  rewrite (all_drafts_sum (fun x _ _ => (take (size y) x == y)%:R)).
  case: y le => [|y [|//]] _ /=.
    under eq_bigr => x _ do under eq_bigr => z _ do rewrite mulr1.
    by under eq_bigr => x _ do rewrite -mulr_sumr [\sum_z _]p1 mulr1; rewrite [LHS]p1.
  under eq_bigr => x _ do rewrite -mulr_suml -mulr_sumr [\sum_z _]p1 mulr1.
  rewrite (bigD1 y) //= eqxx big1 ?addr0 // => x /negbTE n; rewrite /= eqseq_cons n mulr0 //.
rewrite /bind /draw /ret (all_drafts_sum (fun x a z => begins (@always 2 p2) [::] (rcons (take a x) z) y)).
rewrite /=; case: y => [|y [|y' s]] /=.
- by under eq_bigr => x _ do under eq_bigr => z _ do rewrite mulr1;
  under eq_bigr => x _ do rewrite -mulr_sumr [\sum_z _]p1 mulr1; rewrite [LHS]p1.
- rewrite (bigD1 y) //= eqxx [X in _ + X]big1 ?addr0 => [|x /negbTE n].
    by under eq_bigr => z _ do rewrite mulr1; rewrite -mulr_sumr [\sum_z _]p1 mulr1.
  by rewrite n; under eq_bigr => z _ do rewrite mulr0; rewrite big1_eq.
rewrite (bigD1 y) //= eqxx [X in _ + X]big1 ?addr0 => [|x /negbTE n]; last first.
  by rewrite n; under eq_bigr => z _ do rewrite mulr0; rewrite big1_eq.
rewrite (bigD1 y') //= eqxx [X in _ + X]big1 ?addr0 => [|z /negbTE n]; last by rewrite n mulr0.
by rewrite /always mulrA; case: s.
Qed.
Example all_drafts_attain y : accepts_at_least all_drafts_law [:: y]
  = block_accepts (@always 2 p2) (@always 2 p2) 1 [::] [:: y].
Proof.
have [p0 p1] := @law 2 p2 erefl isT.
rewrite /accepts_at_least big_mkcond /=.
rewrite (eq_bigr (fun o : outcome _ 1 =>
    all_drafts_law o * ((0 < o.1.2)%N && (take 1 o.1.1 == [:: y]))%:R)); last first.
  by move=> o _; case: ifP => _; rewrite ?mulr1 ?mulr0.
rewrite (all_drafts_sum (fun x a _ => ((0 < a)%N && (take 1 x == [:: y]))%:R)) /=.
under eq_bigr => x _ do rewrite -mulr_suml -mulr_sumr [\sum_z _]p1 mulr1.
rewrite (bigD1 y) //= eqxx big1 ?addr0 => [|x /negbTE n]; last by rewrite eqseq_cons n mulr0.
by rewrite mul1r divff ?mulr1 ?minxx //; case: y => -[|[|//]] lt.
Qed.
