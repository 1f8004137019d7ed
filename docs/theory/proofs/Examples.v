(** Instances of the theorems, ordinary and degenerate ones, over the rationals: no premise is
    empty, and the conclusions say what one expects. *)

From Coq Require Import QArith.
From mathcomp Require Import all_ssreflect all_algebra.
From OTM Require Import Computable Statements Laws Residual Cuts Certificates KSeq Slots Computed
  Fractions.
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

(** Independent drafts are all in a set with its mass to the power k; none are, surely. *)
Example both_first : all_inside (@drafts _ 2) (iid (@law_of 2 p2)) [set ord0] = value (9#16)%QQ.
Proof. by rewrite iid_all_inside_proved /mass big_set1; apply/eqP. Qed.
Example none_outside : all_inside (@drafts _ 0) (iid (@law_of 2 p2)) set0 = 1.
Proof. by rewrite iid_all_inside_proved expr0. Qed.

(** Accepted masses: what a rule accepts; the least law of two; and one that is too large. *)
Example coupling_accepts : exists2 v, is_accepted_mass (@one_draft _) (@law_of 2 p2) v
  & (forall y, v y <= @law_of 2 q2 y) /\ total v = value (1#2)%QQ.
Proof.
rewrite -coupling_half; apply: theorem_1_1_converse_proved.
by have [] := theorem_1_2_proved (law (n := 2) (p := p2) erefl isT) (law (p := q2) erefl isT).
Qed.
Lemma one_hits (A : {set 'I_2}) : hits (@one_draft _) (@law_of 2 p2) A = mass (@law_of 2 p2) A.
Proof. by apply: eq_bigl => x; rewrite /one_draft disjoints1 negbK. Qed.
Example least_law : is_accepted_mass (@one_draft _) (@law_of 2 p2)
  (fun y => Num.min (@law_of 2 p2 y) (@law_of 2 q2 y)).
Proof.
have [[p0 _] [q0 _]] := (@law 2 p2 erefl isT, @law 2 q2 erefl isT).
apply/theorem_2_2_proved => [//|y|A]; first by rewrite le_minr p0 q0.
by rewrite one_hits; apply: ler_sum => y _; rewrite le_minl lexx.
Qed.
Example nothing_accepted : is_accepted_mass (fun _ : 'I_1 => set0) (@law_of 1 one) (fun _ : 'I_2 => 0).
Proof.
have [p0 _] := @law 1 one erefl isT.
by apply/theorem_2_2_proved => [//|//|A]; rewrite /mass big1_eq; apply: sumr_ge0 => x _; apply: p0.
Qed.
Example too_much : ~ is_accepted_mass (@one_draft _) (@law_of 2 p2) (@law_of 2 q2).
Proof.
have [[p0 _] [q0 _]] := (@law 2 p2 erefl isT, @law 2 q2 erefl isT).
move/theorem_2_2_proved => /(_ p0 q0 [set Ordinal (isT : (1 < 2)%N)]).
by rewrite one_hits /mass !big_set1.
Qed.

(** The least cut is attained, also where no more than nothing may be accepted. *)
Example least_cut : exists v H, [/\ is_accepted_mass (@one_draft _) (@law_of 2 p2) v,
  forall y, v y <= @law_of 2 q2 y, total v = cut (@one_draft _) (@law_of 2 p2) (@law_of 2 q2) H
  & total v = value (1#2)%QQ].
Proof.
have [p_law q_law] := (@law 2 p2 erefl isT, @law 2 q2 erefl isT); have [q0 _] := q_law.
have [most [v [H [ok below at_cut _]]]] := theorem_2_1_proved (@one_draft _) p_law q0.
exists v, H; split=> //; apply/le_anti/andP; split.
  have := most v [set ord0] ok below; rewrite /cut.
  suff -> : all_inside (@one_draft _) (@law_of 2 p2) [set ord0] = value (3#4)%QQ by rewrite /mass big_set1.
  by rewrite /all_inside (big_pred1 ord0) // => x; rewrite /one_draft sub1set inE.
have [w w_ok [w_below <-]] := coupling_accepts.
by rewrite at_cut; apply: most.
Qed.
Example no_cut : exists v H, [/\ is_accepted_mass (@one_draft _) (@law_of 2 p2) v,
  forall y, v y <= 0 & total v = cut (@one_draft _) (@law_of 2 p2) (fun=> 0) H].
Proof.
have [_ [v [H [ok below at_cut _]]]] := theorem_2_1_proved (@one_draft _) (u := fun=> 0)
  (@law 2 p2 erefl isT) (fun=> lexx 0).
by exists v, H.
Qed.

(** The plan of docs/theory/optimal-plan.md, by hand: three bins, of which the first two swap. *)
Definition p3 : seq Q := [:: 1#2; 1#4; 1#4]%QQ.
Definition q3 : seq Q := [:: 1#4; 1#4; 1#2]%QQ.
Definition t3 : 'I_3 -> rat := @entry _ 3 (values [:: 5#8; 1; 7#4]%QQ).
Definition delta3 (i j : 'I_3) : rat := if (i == 0) && (j == 1) then value (1#16)%QQ else 0.
Definition first_highest k J (s : {ffun 'I_k.+1 -> 'I_J}) := [arg max_(i > ord0) (s i : nat)].
Lemma first_highest_ok k J : @highest J k.+1 (@first_highest k J).
Proof. by move=> s i; rewrite /first_highest; case: arg_maxnP => // j _; apply. Qed.
Lemma bin3 (F : 'I_3 -> rat) j : \sum_(x | x == j) F x = F j.
Proof. exact: big_pred1_eq. Qed.
Lemma slopes3 j : slope 2 (bin_mass id (@law_of 3 p3)) j = @entry _ 3 (values [:: 1#2; 5#4; 7#4]%QQ) j.
Proof.
rewrite /slope /mass /bin_mass !bin3 !(eq_bigr _ (fun j _ => bin3 (@law_of 3 p3) j)).
rewrite [\sum_(_ in [set j0 : 'I_3 | (j0 <= j)%N]) _]big_mkcond [\sum_(_ in [set j0 : 'I_3 | (j0 < j)%N]) _]big_mkcond.
rewrite !big_ord_recl !big_ord0 !inE.
by case: j => -[|[|[|//]]] lt; apply/eqP.
Qed.
Lemma lacks3 j : lacks 2 id (@law_of 3 p3) t3 j = @entry _ 3 (values [:: 1#16; -1#16; 0]%QQ) j.
Proof.
rewrite /lacks (eq_bigr (fun x => @law_of 3 p3 x * (t3 x - @entry _ 3 (values [:: 1#2; 5#4; 7#4]%QQ) j))) => [|x _].
  by rewrite bin3; case: j => -[|[|[|//]]] lt; apply/eqP.
by rewrite slopes3.
Qed.
Lemma pure3 : pure 2 id (@law_of 3 p3) t3.
Proof.
split=> [j|x y|x|x]; rewrite ?lacks3 ?slopes3; first by rewrite /bin_mass bin3; case: j => -[|[|[|//]]] lt.
- by case: x => -[|[|[|//]]] lx; case: y => -[|[|[|//]]] ly.
- by case: x => -[|[|[|//]]] lx.
- by case: x => -[|[|[|//]]] lx.
Qed.
Lemma matches3 : matches 2 id delta3 (@law_of 3 p3) t3.
Proof.
split=> [i j|i j|i|j]; rewrite ?lacks3.
- by rewrite /delta3; case: ifP.
- by case: i => -[|[|[|//]]] li; case: j => -[|[|[|//]]] lj.
- by rewrite !big_ord_recl big_ord0; case: i => -[|[|[|//]]] li; apply/eqP.
- by rewrite !big_ord_recl big_ord0; case: j => -[|[|[|//]]] lj; apply/eqP.
Qed.
Example swaps_optimal : acceptance (@drafts _ 2) (accept_or_draw (iid (@law_of 3 p3)) (@law_of 3 q3)
  (accept_winner (@law_of 3 p3) (@law_of 3 q3) (swapped 2 id delta3 (@law_of 3 p3) t3)
    (@first_highest 1 3))) = value (15#16)%QQ.
Proof.
have best := @optimum 3 2 p3 q3 (15#16)%QQ erefl erefl isT isT isT.
have enough : value (15#16)%QQ <= overlap (@law_of 3 q3) (fun y => @law_of 3 p3 y * t3 y).
  by rewrite /overlap !big_ord_recl big_ord0.
by case: (theorem_5_3_proved (@law 3 p3 erefl isT) (@law 3 q3 erefl isT) pure3 matches3
  (@first_highest_ok 1 3) best enough).
Qed.
(** Without swaps, and with one slot for all: lossless too. *)
Definition own_slot (x i : 'I_2) : rat := (i == x)%:R.
Lemma own_slot_law x : is_law (own_slot x).
Proof.
split=> [i|]; first exact: ler0n.
by rewrite /total /own_slot (bigD1 x) //= eqxx big1 ?addr0 // => i /negbTE ->.
Qed.
Example any_table : lossless (iid (@law_of 2 p2)) (@law_of 2 q2) (accept_or_draw (iid (@law_of 2 p2))
  (@law_of 2 q2) (accept_winner (@law_of 2 p2) (@law_of 2 q2) own_slot (@first_highest 2 2))).
Proof.
by case: (theorem_5_4_proved (@law 2 p2 erefl isT) (@law 2 q2 erefl isT) own_slot_law
  (@first_highest_ok 2 2)).
Qed.
Definition one_slot (x : 'I_2) (i : 'I_1) : rat := 1.
Example one_slot_first y : accepted (wins (@law_of 2 p2) one_slot (fun _ : {ffun 'I_2 -> 'I_1} => ord0)) y
  = @law_of 2 p2 y.
Proof.
have one_law x : is_law (one_slot x) by split=> [i|]; rewrite ?ler01 // /total big_ord1.
have top : @highest 1 2 (fun _ => ord0) by move=> s i; rewrite !ord1.
have [-> _ _] := theorem_5_4_proved (@law 2 p2 erefl isT) (@law 2 q2 erefl isT) one_law top.
rewrite /winner_law big_ord1 /slope /mass /slot_mass /one_slot big_mkcond [X in _ - X ^+ _]big_mkcond.
rewrite !big_ord1 !inE /= !big_ord_recl !big_ord0 mulr1.
by case: y => -[|[|//]] lt; apply/eqP.
Qed.
