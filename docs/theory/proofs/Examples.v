(** Instances of the theorems, ordinary and degenerate ones, over the rationals: no premise is
    empty, and the conclusions say what one expects. *)

From Coq Require Import QArith.
From mathcomp Require Import all_ssreflect all_algebra.
From OTM Require Import Computable Statements Laws Residual Cuts Certificates KSeq Computed Fractions
  TextStatements Texts Blocks Best.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Delimit Scope Q_scope with QQ.

(** Laws of two tokens, of one, and of two that never agree. *)
Definition p2 : seq Q := [:: 3#4; 1#4]%QQ.
Definition q2 : seq Q := [:: 1#4; 3#4]%QQ.
Definition one : seq Q := [:: 1]%QQ.
Definition first : seq Q := [:: 1; 0]%QQ.
Definition second : seq Q := [:: 0; 1]%QQ.
Definition uniform : seq Q := [:: 1#2; 1#2]%QQ.

Local Open Scope ring_scope.

Definition law_of n (p : seq Q) : 'I_n -> rat := @entry _ n (values p).

Lemma law n (p : seq Q) : size p = n -> compute_is_law (N := fractions) p -> is_law (@law_of n p).
Proof. by move=> <- /values_law; apply: computed_law_proved. Qed.

Lemma optimum n k (p q : seq Q) (a : Q) : size p = n -> size q = n ->
  compute_is_law (N := fractions) p -> compute_is_law (N := fractions) q ->
  Qeq_bool (compute_alpha (N := fractions) k p q) a ->
  is_optimum (@drafts _ k) (iid (@law_of n p)) (@law_of n q) (value a).
Proof.
move=> p_size q_size p_law q_law /Qeq_bool_eq/value_Qeq <-; subst n.
exact: fractions_alpha_proved.
Qed.

(** The example of the README: 11/16 with two drafts, 1/2 with one. *)
Example two_drafts : is_optimum (@drafts _ 2) (iid (@law_of 2 p2)) (@law_of 2 q2) (value (11#16)%QQ).
Proof. exact: optimum. Qed.
Example one_draft_only : is_optimum (@drafts _ 1) (iid (@law_of 2 p2)) (@law_of 2 q2) (value (1#2)%QQ).
Proof. exact: optimum. Qed.

(** Degenerate: equal laws accept all, disjoint ones nothing, and no draft is never accepted. *)
Example equal_laws : is_optimum (@drafts _ 3) (iid (@law_of 2 p2)) (@law_of 2 p2) (value 1%QQ).
Proof. exact: optimum. Qed.
Example disjoint_laws : is_optimum (@drafts _ 3) (iid (@law_of 2 first)) (@law_of 2 second) (value 0%QQ).
Proof. exact: optimum. Qed.
Example one_token : is_optimum (@drafts _ 2) (iid (@law_of 1 one)) (@law_of 1 one) (value 1%QQ).
Proof. exact: optimum. Qed.
Example no_draft : is_optimum (@drafts _ 0) (iid (@law_of 2 p2)) (@law_of 2 q2) (value 0%QQ).
Proof. exact: optimum. Qed.

(** The closed form is not a minimum over two cuts only: here it is inside. *)
Example inner_cut : is_optimum (@drafts _ 2)
  (iid (@law_of 4 [:: 7#17; 2#17; 6#17; 2#17]%QQ)) (@law_of 4 [:: 1#9; 1#9; 4#9; 3#9]%QQ)
  (value (2310#2601)%QQ).
Proof. exact: optimum. Qed.

(** Maximal coupling, with some, all and no acceptance. *)
Example coupling_half : acceptance (@one_draft _)
  (accept_or_draw (@law_of 2 p2) (@law_of 2 q2) (coupled (@law_of 2 p2) (@law_of 2 q2))) = value (1#2)%QQ.
Proof.
have [_ -> _ _] := theorem_1_2_proved (law (n := 2) (p := p2) erefl isT) (law (p := q2) erefl isT).
have lp : lists_law 2 (values p2) by apply: values_law.
have lq : lists_law 2 (values q2) by apply: values_law.
have [_ _ <- _] := computed_coupled_proved lp lq.
by apply/eqP.
Qed.

Example coupling_equal : lossless (@law_of 2 p2) (@law_of 2 p2)
  (accept_or_draw (@law_of 2 p2) (@law_of 2 p2) (coupled (@law_of 2 p2) (@law_of 2 p2))).
Proof. by have [] := theorem_1_2_proved (law (n := 2) (p := p2) erefl isT) (law (p := p2) erefl isT). Qed.

Example coupling_disjoint : lossless (@law_of 2 first) (@law_of 2 second)
  (accept_or_draw (@law_of 2 first) (@law_of 2 second) (coupled (@law_of 2 first) (@law_of 2 second))).
Proof. by have [] := theorem_1_2_proved (law (n := 2) (p := first) erefl isT) (law (p := second) erefl isT). Qed.

(** A certificate that is accepted, with what it proves, and ones that are refused: the lower end
    too high, the upper one too low, the cap too large. *)
Definition claim_of cap lower upper := compute_certificate (N := fractions) 2 [:: 3; 1]%QQ
  [:: 1; 3]%QQ [:: 0%N] cap lower upper lower upper.
Example claim_accepted : claim_of (7#4)%QQ (11#16)%QQ (11#16)%QQ.
Proof. by []. Qed.
Example claim_proves : exists2 alpha, is_optimum (@drafts _ 2)
    (iid (normalised (@law_of 2 [:: 3; 1]%QQ))) (normalised (@law_of 2 [:: 1; 3]%QQ)) alpha
  & value (11#16)%QQ <= alpha /\ alpha <= value (11#16)%QQ.
Proof. exact: (fractions_certificate_proved claim_accepted). Qed.
Example claims_refused : [|| claim_of (7#4)%QQ (12#16)%QQ (12#16)%QQ,
  claim_of (7#4)%QQ (10#16)%QQ (10#16)%QQ | claim_of 2%QQ (11#16)%QQ (11#16)%QQ] = false.
Proof. by []. Qed.

(** k-Seq: a valid factor and a larger one; the least one for equal and for disjoint laws. *)
Lemma k_seq_lossless k (p q : seq Q) (r s : Q) : size p = 2%N -> size q = 2%N ->
  compute_is_law (N := fractions) p -> compute_is_law (N := fractions) q ->
  Qle_bool 1 r -> Qle_bool (compute_excess (N := fractions) k p q r) 0 -> Qle_bool r s ->
  lossless (iid (@law_of 2 p)) (@law_of 2 q) (accept_or_draw (iid (@law_of 2 p)) (@law_of 2 q)
    (@k_seq _ _ k (@law_of 2 p) (@law_of 2 q) (value s))).
Proof.
move=> p_size q_size p_law q_law; rewrite !value_le => r1 e rs.
have r0 : 0 < value r by apply: lt_le_trans r1.
have [] := @theorem_6_2_proved _ _ k _ _ (value r) (value s) (law p_size p_law) (law q_size q_law) r1 _ rs.
  have lp := values_law p_law; have lq := values_law q_law; rewrite p_size in lp; rewrite q_size in lq.
  have [_ <- _ _ _] := computed_k_seq_proved k lp lq r0.
  by have [_ [_ _ _ _ h]] := computed_in_fractions_proved; have [_ _ <- _] := h k p q r.
by [].
Qed.

Example k_seq_valid : lossless (iid (@law_of 2 p2)) (@law_of 2 q2) (accept_or_draw
  (iid (@law_of 2 p2)) (@law_of 2 q2) (@k_seq _ _ 2 (@law_of 2 p2) (@law_of 2 q2) (value (8#5)%QQ))).
Proof. exact: (@k_seq_lossless 2 p2 q2 (8#5)%QQ). Qed.
Example k_seq_larger : lossless (iid (@law_of 2 p2)) (@law_of 2 q2) (accept_or_draw
  (iid (@law_of 2 p2)) (@law_of 2 q2) (@k_seq _ _ 2 (@law_of 2 p2) (@law_of 2 q2) (value 7%QQ))).
Proof. exact: (@k_seq_lossless 2 p2 q2 (8#5)%QQ). Qed.
Example k_seq_equal : lossless (iid (@law_of 2 p2)) (@law_of 2 p2) (accept_or_draw
  (iid (@law_of 2 p2)) (@law_of 2 p2) (@k_seq _ _ 3 (@law_of 2 p2) (@law_of 2 p2) (value 1%QQ))).
Proof. exact: (@k_seq_lossless 3 p2 p2 1%QQ). Qed.
Example k_seq_disjoint : lossless (iid (@law_of 2 first)) (@law_of 2 second) (accept_or_draw
  (iid (@law_of 2 first)) (@law_of 2 second)
  (@k_seq _ _ 2 (@law_of 2 first) (@law_of 2 second) (value 1%QQ))).
Proof. exact: (@k_seq_lossless 2 first second 1%QQ). Qed.
(** Below rho* the premise fails, as it must. *)
Example k_seq_too_small : Qle_bool (compute_excess (N := fractions) 2 p2 q2 (3#2)%QQ) 0 = false.
Proof. by []. Qed.

(** Any law of drafts: here both tokens are always drafted, or none ever is. *)
Example both_drafted : is_optimum (fun _ : 'I_1 => [set: 'I_2]) (@law_of 1 one) (@law_of 2 q2) 1.
Proof.
have p_law := law (n := 1) (p := one) erefl isT; have q_law := law (n := 2) (p := q2) erefl isT.
have all plan : lossless (@law_of 1 one) (@law_of 2 q2) plan ->
    acceptance (fun _ : 'I_1 => [set: 'I_2]) plan = 1.
  case=> _ rows _; case: p_law => _ <-; apply: eq_bigr => x _; rewrite -rows.
  by apply: eq_bigl => y; rewrite inE.
have [H [[plan ok _] _] _] := theorem_2_1_optimum_proved (fun _ : 'I_1 => [set: 'I_2]) p_law q_law.
by split=> [|other /all ->]; [exists plan => //; apply: all | ].
Qed.
Example never_drafted plan : lossless (@law_of 1 one) (@law_of 2 q2) plan ->
  acceptance (fun _ : 'I_1 => set0) plan <= 0.
Proof.
move=> ok; have := theorem_2_1_bound_proved (fun _ : 'I_1 => set0) set0
  (law (n := 1) (p := one) erefl isT) ok.
have [_ p1] := law (n := 1) (p := one) erefl isT.
rewrite mass_set0 add0r /all_inside (eq_bigl predT) => [|x]; last by rewrite sub0set.
by rewrite -[X in 1 - X]/(total _) p1 subrr.
Qed.

(** Texts: two models that differ, that are equal, and that never agree; no draft at all. *)
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
