(** What is proved: all definitions, and the statements as propositions.

    Read this file beside the pages of docs/theory; the numbers are theirs.  The other
    files prove each proposition, and Checked.v lists the proofs and what they assume.
    Probabilities are functions from a finite type to any ordered field R. *)

From Coq Require Import QArith.
From mathcomp Require Import all_ssreflect all_algebra ssrZ.
From OTM Require Import Computable.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Local Open Scope ring_scope.

(** * Laws *)

Section Laws.
Variables (R : realFieldType) (A : finType).
Implicit Types (f g : A -> R) (H : {set A}).

Definition total f := \sum_a f a.
Definition mass f H := \sum_(a in H) f a.
Definition is_law f := (forall a, 0 <= f a) /\ total f = 1.
Definition overlap f g := \sum_a Num.min (f a) (g a).
Definition total_variation f g := (\sum_a `|f a - g a|) / 2%:R.

End Laws.

(** * The problem (docs/theory/problem.md)

    X has the outcomes of drafting, T the tokens, and [drafted x] is the set S of tokens that
    are drafted in the outcome x.  P is the law of the outcomes: any joint law of drafts. *)

Section Problem.
Variables (R : realFieldType) (X T : finType) (drafted : X -> {set T}).
Implicit Types (P : X -> R) (q u v : T -> R) (plan f : X -> T -> R) (H A : {set T}).

(** A lossless rule, by its transport plan: the joint law of the drafts and the output. *)
Definition lossless P q plan :=
  [/\ forall x y, 0 <= plan x y,
      forall x, \sum_y plan x y = P x
    & forall y, \sum_x plan x y = q y].

Definition acceptance plan := \sum_x \sum_(y in drafted x) plan x y.

(** a is the largest acceptance probability of all lossless rules. *)
Definition is_optimum P q a :=
  (exists2 plan, lossless P q plan & acceptance plan = a)
  /\ forall plan, lossless P q plan -> acceptance plan <= a.

(** Accepting drafts only: f x y is the probability of the outcome x and that y is accepted. *)
Definition accepts P f :=
  [/\ forall x y, 0 <= f x y,
      forall x y, y \notin drafted x -> f x y = 0
    & forall x, \sum_y f x y <= P x].

Definition accepted f (y : T) := \sum_x f x y.

Definition is_accepted_mass P v := exists2 f, accepts P f & forall y, accepted f y = v y.

(** Accept by f, otherwise draw from the residual law, whatever the drafts are.  (In Coq a
    number divided by zero is zero; there nothing is left to draw.) *)
Definition residual q f y := (q y - accepted f y) / (1 - total (accepted f)).
Definition accept_or_draw P q f x y :=
  f x y + (P x - \sum_z f x z) * residual q f y.

(** The probability that the drafts hit A, that all are in H, and the value of the cut H. *)
Definition hits P A := \sum_(x | ~~ [disjoint drafted x & A]) P x.
Definition all_inside P H := \sum_(x | drafted x \subset H) P x.
Definition cut P u H := mass u H + 1 - all_inside P H.

End Problem.

(** * One draft, and k independent ones *)

Section Drafts.
Variables (R : realFieldType) (T : finType).
Implicit Types (p q : T -> R) (x : T).

Definition one_draft x : {set T} := [set x].

(** Algorithm 1 of SpecTr: accept x with probability min(1, q/p). *)
Definition coupled p q x y := if x == y then Num.min (p x) (q x) else 0.

Variable k : nat.
Implicit Type d : {ffun 'I_k -> T}.

Definition drafts d : {set T} := [set d i | i : 'I_k].
Definition iid p d := \prod_i p (d i).

(** k-Seq (docs/theory/k-seq.md): the first draft that passes its test is accepted; a draft
    y passes with probability min(1, q(y) / (rho p(y))).  *)
Definition passes p q rho y := Num.min 1 (q y / (rho * p y)).
Definition k_seq p q rho d y :=
  iid p d * \sum_(i | d i == y)
    (\prod_(j : 'I_k | (j < i)%N) (1 - passes p q rho (d j))) * passes p q rho (d i).

Definition beta p q rho := \sum_y Num.min (p y) (q y / rho).
Definition excess p q rho := 1 - (1 - beta p q rho) ^+ k - rho * beta p q rho.

(** The first j tokens of an order, and the value of this prefix as a cut. *)
Definition prefix (s : seq T) j : {set T} := [set y in take j s].
Definition prefix_value p q s j := mass q (prefix s j) + 1 - mass p (prefix s j) ^+ k.

(** What the checker otm/certificate.py tests, for weights a of the draft law and b of the
    target, which need not sum to one.  s is the list [below_cap] of accepted_mass.
    - weights: a, b >= 0, not all zero;
    - check: k >= 1, and the interval [low, high] is around lower and upper;
    - check_cut: 1 <= upper, or q(H) + 1 - p(H)^k <= upper;
    - accepted_mass: cap >= 0; s has the tokens with v < cap p, by ascending b/a; and with A
      all but the first j of them, v(A) <= 1 - (1 - p(A))^k for every j; lower <= sum of v. *)
Definition is_weights (a : T -> R) := (forall y, 0 <= a y) /\ 0 < total a.
Definition normalised (a : T -> R) y := a y / total a.
Definition capped p q c y := Num.min (q y) (c * p y).
Definition all_but (s : seq T) j : {set T} := [set y | y \notin take j s].

Record certificate_checks (a b : T -> R) (H : {set T}) (cap lower upper low high : R)
    (s : seq T) : Prop := CertificateChecks {
  checks_weights : is_weights a /\ is_weights b;
  checks_k : (0 < k)%N;
  checks_interval : low <= lower /\ upper <= high;
  checks_cut : 1 <= upper
    \/ mass (normalised b) H + 1 - mass (normalised a) H ^+ k <= upper;
  checks_cap : 0 <= cap;
  checks_below_cap : uniq s /\ forall y, (y \in s) =
    (0 < a y) && (capped (normalised a) (normalised b) cap y < cap * normalised a y);
  checks_sorted : sorted (fun y z => b y * a z <= b z * a y) s;
  checks_accepted : forall j, (j <= size s)%N ->
    mass (capped (normalised a) (normalised b) cap) (all_but s j)
      <= 1 - (1 - mass (normalised a) (all_but s j)) ^+ k;
  checks_lower : lower <= total (capped (normalised a) (normalised b) cap)
}.

End Drafts.

(** * Part 1: accept or draw from the residual *)

(** Theorem 1.1. *)
Definition theorem_1_1 : Prop :=
  forall (R : realFieldType) (X T : finType) (drafted : X -> {set T}) (P : X -> R) (q : T -> R) f,
  is_law P -> is_law q -> accepts drafted P f -> (forall y, accepted f y <= q y) ->
  [/\ lossless P q (accept_or_draw P q f),
      total (accepted f) <= acceptance drafted (accept_or_draw P q f)
    & (forall x y, y \in drafted x -> (P x - \sum_z f x z) * residual q f y = 0) ->
      acceptance drafted (accept_or_draw P q f) = total (accepted f)].

(** The other half: what a lossless rule accepts is an accepted mass below q. *)
Definition theorem_1_1_converse : Prop :=
  forall (R : realFieldType) (X T : finType) (drafted : X -> {set T}) (P : X -> R) (q : T -> R) plan,
  lossless P q plan ->
  exists2 v, is_accepted_mass drafted P v & (forall y, v y <= q y) /\ total v = acceptance drafted plan.

(** Theorem 1.2: maximal coupling is lossless and optimal for one draft. *)
Definition theorem_1_2 : Prop :=
  forall (R : realFieldType) (T : finType) (p q : T -> R),
  is_law p -> is_law q ->
  let rule := accept_or_draw p q (coupled p q) in
  [/\ lossless p q rule,
      acceptance (@one_draft T) rule = overlap p q,
      is_optimum (@one_draft T) p q (overlap p q)
    & overlap p q = 1 - total_variation p q].

(** * Part 2: cuts and certificates *)

(** The half of Theorem 2.1 that bounds every rule by every cut, for any joint law. *)
Definition theorem_2_1_bound : Prop :=
  forall (R : realFieldType) (X T : finType) (drafted : X -> {set T}) (P : X -> R) (q : T -> R) plan H,
  is_law P -> lossless P q plan ->
  acceptance drafted plan <= mass q H + 1 - all_inside drafted P H.

(** Theorem 2.1: the largest accepted mass below u is the least cut. *)
Definition theorem_2_1 : Prop :=
  forall (R : realFieldType) (X T : finType) (drafted : X -> {set T}) (P : X -> R) (u : T -> R),
  is_law P -> (forall y, 0 <= u y) ->
  (forall v H, is_accepted_mass drafted P v -> (forall y, v y <= u y) ->
     total v <= cut drafted P u H)
  /\ exists v H, [/\ is_accepted_mass drafted P v, forall y, v y <= u y,
       total v = cut drafted P u H & forall H', cut drafted P u H <= cut drafted P u H'].

(** With u = q: the optimum exists and is the least cut. *)
Definition theorem_2_1_optimum : Prop :=
  forall (R : realFieldType) (X T : finType) (drafted : X -> {set T}) (P : X -> R) (q : T -> R),
  is_law P -> is_law q ->
  exists2 H, is_optimum drafted P q (cut drafted P q H)
    & forall H', cut drafted P q H <= cut drafted P q H'.

(** Theorem 2.2: which masses can be accepted. *)
Definition theorem_2_2 : Prop :=
  forall (R : realFieldType) (X T : finType) (drafted : X -> {set T}) (P : X -> R) (v : T -> R),
  (forall x, 0 <= P x) -> (forall y, 0 <= v y) ->
  is_accepted_mass drafted P v <-> forall A : {set T}, mass v A <= hits drafted P A.

(** For i.i.d. drafts: all are in H with probability p(H)^k. *)
Definition iid_all_inside : Prop :=
  forall (R : realFieldType) (T : finType) (p : T -> R) k (H : {set T}),
  all_inside (@drafts T k) (iid p) H = mass p H ^+ k.

(** Theorem 3.1, the closed form: the optimum is the least value of the prefixes in the order
    of q/p (ties in any order) of the tokens with p > 0. *)
Definition theorem_3_1 : Prop :=
  forall (R : realFieldType) (T : finType) k (p q : T -> R) (s : seq T),
  is_law p -> is_law q ->
  uniq s -> (forall y, (y \in s) = (0 < p y)) -> sorted (fun y z => q y * p z <= q z * p y) s ->
  exists2 j, (j <= size s)%N
    & is_optimum (@drafts T k) (iid p) q (prefix_value k p q s j)
      /\ forall i, (i <= size s)%N -> prefix_value k p q s j <= prefix_value k p q s i.

(** Theorem 8.1 with the check of the cut: a certificate that passes its check is right, about
    the optimum, which exists. *)
Definition theorem_8_1 : Prop :=
  forall (R : realFieldType) (T : finType) k (a b : T -> R) H cap lower upper low high s,
  certificate_checks k a b H cap lower upper low high s ->
  exists2 alpha, is_optimum (@drafts T k) (@iid R T k (normalised a)) (normalised b) alpha
    & [/\ lower <= alpha, alpha <= upper, low <= alpha & alpha <= high].

(** * Part 3: k-Seq *)

(** Theorem 6.1: what the test accepts. *)
Definition theorem_6_1_mass : Prop :=
  forall (R : realFieldType) (T : finType) k (p q : T -> R) rho y,
  is_law p -> is_law q -> 0 < rho ->
  accepted (@k_seq R T k p q rho) y
    = (\sum_(i < k) (1 - beta p q rho) ^+ i) * Num.min (p y) (q y / rho).

(** Theorems 6.1 and 6.2: lossless wherever the excess is at most zero, which it is from the
    first such factor on, so for every rho >= rho*, and at rho = k. *)
Definition theorem_6_2 : Prop :=
  forall (R : realFieldType) (T : finType) k (p q : T -> R) rho_star rho,
  is_law p -> is_law q ->
  1 <= rho_star -> excess k p q rho_star <= 0 -> rho_star <= rho ->
  let f := @k_seq R T k p q rho in
  [/\ accepts (@drafts T k) (iid p) f, forall y, accepted f y <= q y
    & lossless (iid p) q (accept_or_draw (iid p) q f)].

Definition theorem_6_2_factor_k : Prop :=
  forall (R : realFieldType) (T : finType) k (p q : T -> R),
  is_law p -> is_law q -> (0 < k)%N ->
  0 <= excess k p q 1 /\ excess k p q k%:R <= 0.

(** * Part 5: slots and swaps (docs/theory/optimal-plan.md)

    Each draft takes one of J slots; a draft of token x takes slot i with probability kappa x i.
    [winner] says which draft wins, from the slots alone, and must name one in a highest slot:
    the first, the last, any. *)

Section Slots.
Variables (R : realFieldType) (T : finType) (J k : nat).
Implicit Types (p q t : T -> R) (kappa : T -> 'I_J -> R).

Definition highest (winner : {ffun 'I_k -> 'I_J} -> 'I_k) :=
  forall (s : {ffun 'I_k -> 'I_J}) i, (s i <= s (winner s))%N.

(** The probability that the drafts are d and y wins. *)
Definition wins p kappa winner (d : {ffun 'I_k -> T}) y :=
  iid p d * \sum_(s : {ffun 'I_k -> 'I_J} | d (winner s) == y) \prod_i kappa (d i) (s i).

(** The mass g_i of a slot; its slope W_i, which is the probability that a draft in slot i wins,
    over its mass; and the law of the winner, v'. *)
Definition slot_mass p kappa (i : 'I_J) := \sum_x p x * kappa x i.
Definition slope (g : 'I_J -> R) (i : 'I_J) :=
  (mass g [set j : 'I_J | (j <= i)%N] ^+ k - mass g [set j : 'I_J | (j < i)%N] ^+ k) / g i.
Definition winner_law p kappa y := \sum_i p y * kappa y i * slope (slot_mass p kappa) i.

(** Accept the winner with probability min(1, q/v'). *)
Definition accept_winner p q kappa winner d y :=
  wins p kappa winner d y * Num.min 1 (q y / winner_law p kappa y).

(** Bins and swaps.  [bin] gives each token its bin, and t is the winning law over p.  A bin lacks
    what is missing if all its drafts stay in the slot of their own bin; swaps bring it, and delta
    says how much of it each pair of bins exchanges. *)
Variables (bin : T -> 'I_J) (delta : 'I_J -> 'I_J -> R).
Definition bin_mass p (j : 'I_J) := \sum_(x | bin x == j) p x.
Definition lacks p t j := \sum_(x | bin x == j) p x * (t x - slope (bin_mass p) j).

(** delta covers what poor bins lack with what rich ones have in excess, from higher slots only. *)
Record matches p t : Prop := Matches {
  matches_ge0 : forall i j : 'I_J, 0 <= delta i j;
  matches_up : forall i j : 'I_J, (j <= i)%N -> delta i j = 0;
  matches_poor : forall i, \sum_j delta i j = Num.max (lacks p t i) 0;
  matches_rich : forall j, \sum_i delta i j = Num.max (- lacks p t j) 0
}.

(** t ascends from bin to bin, and lies on one side of the slope in each: the bins are pure. *)
Record pure p t : Prop := Pure {
  pure_mass : forall j, 0 < bin_mass p j;
  pure_ascends : forall x y, (bin x < bin y)%N -> t x <= t y;
  pure_poor : forall x, 0 <= lacks p t (bin x) -> slope (bin_mass p) (bin x) <= t x;
  pure_rich : forall x, lacks p t (bin x) <= 0 -> t x <= slope (bin_mass p) (bin x)
}.

(** The mass s that two bins exchange, the share of a token in the moves of its bin, and the
    probability that a draft of x takes slot i. *)
Definition swap p i j := delta i j / (slope (bin_mass p) j - slope (bin_mass p) i).
Definition share p t x := bin_mass p (bin x) * (t x - slope (bin_mass p) (bin x)) / lacks p t (bin x).
Definition moves p t x i := share p t x * (swap p (bin x) i + swap p i (bin x)) / bin_mass p (bin x).
Definition swapped p t x i := moves p t x i + (if i == bin x then 1 - \sum_j moves p t x j else 0).

End Slots.

(** Theorem 5.4: any table is lossless. *)
Definition theorem_5_4 : Prop :=
  forall (R : realFieldType) (T : finType) J k (p q : T -> R) (kappa : T -> 'I_J -> R) winner,
  is_law p -> is_law q -> (forall x, is_law (kappa x)) -> @highest J k winner ->
  let rule := accept_or_draw (iid p) q (accept_winner p q kappa winner) in
  [/\ forall y, accepted (wins p kappa winner) y = winner_law k p kappa y,
      lossless (iid p) q rule
    & overlap q (winner_law k p kappa) <= acceptance (@drafts T k) rule].

(** Theorem 5.2: slots and swaps realise the winning law, for any matching. *)
Definition theorem_5_2 : Prop :=
  forall (R : realFieldType) (T : finType) J k (p t : T -> R) (bin : T -> 'I_J) delta,
  pure k bin p t -> matches k bin delta p t ->
  [/\ forall x, is_law (swapped k bin delta p t x),
      forall i, slot_mass p (swapped k bin delta p t) i = bin_mass bin p i
    & forall y, winner_law k p (swapped k bin delta p t) y = p y * t y].

(** Theorem 5.3: if min(q, p t) sums to at least the optimum, the plan attains it. *)
Definition theorem_5_3 : Prop :=
  forall (R : realFieldType) (T : finType) J k (p q t : T -> R) (bin : T -> 'I_J) delta winner alpha,
  is_law p -> is_law q -> pure k bin p t -> matches k bin delta p t -> @highest J k winner ->
  is_optimum (@drafts T k) (iid p) q alpha -> alpha <= overlap q (fun y => p y * t y) ->
  let rule := accept_or_draw (iid p) q (accept_winner p q (swapped k bin delta p t) winner) in
  lossless (iid p) q rule /\ acceptance (@drafts T k) rule = alpha.

(** * Part 4: what is computed

    Computable.v has functions on lists.  They are right over any ordered field... *)

Definition numbers_of (R : realFieldType) : numbers :=
  @Numbers R 0 1 +%R (fun x y => x - y) *%R (fun x y => x / y) (fun x y => x <= y).

(** The function on n tokens that a list of n numbers stands for. *)
Definition entry (R : realFieldType) n (p : seq R) (y : 'I_n) : R := nth 0 p y.
Definition lists_law (R : realFieldType) n (p : seq R) : Prop :=
  size p = n /\ compute_is_law (N := numbers_of R) p.

Definition computed_law : Prop := forall (R : realFieldType) n (p : seq R),
  lists_law n p -> is_law (@entry R n p).

Definition computed_coupled : Prop := forall (R : realFieldType) n (p q : seq R),
  lists_law n p -> lists_law n q ->
  let c := compute_coupled (N := numbers_of R) p q in
  [/\ size c = n, forall y : 'I_n, entry c y = accepted (coupled (entry p) (entry q)) y :> R,
      compute_overlap (N := numbers_of R) p q = overlap (@entry R n p) (entry q)
    & forall y : 'I_n, entry (compute_residual (N := numbers_of R) q c) y
        = residual (entry q) (coupled (@entry R n p) (entry q)) y].

Definition computed_alpha : Prop := forall (R : realFieldType) n k (p q : seq R),
  lists_law n p -> lists_law n q ->
  is_optimum (@drafts _ k) (iid (@entry R n p)) (entry q)
    (compute_alpha (N := numbers_of R) k p q).

Definition computed_certificate : Prop :=
  forall (R : realFieldType) n k (a b : seq R) H cap lower upper low high,
  size a = n -> compute_certificate (N := numbers_of R) k a b H cap lower upper low high ->
  exists s, certificate_checks k (@entry R n a) (entry b) [set y | val y \in H]
    cap lower upper low high s.

Definition computed_k_seq : Prop := forall (R : realFieldType) n k (p q : seq R) rho,
  lists_law n p -> lists_law n q -> 0 < rho ->
  let v := compute_k_seq (N := numbers_of R) k p q rho in
  [/\ compute_beta (N := numbers_of R) p q rho = beta (@entry R n p) (entry q) rho,
      compute_excess (N := numbers_of R) k p q rho = excess k (@entry R n p) (entry q) rho,
      compute_passed (N := numbers_of R) k p q rho
        = total (accepted (@k_seq R _ k (@entry R n p) (entry q) rho)),
      forall y : 'I_n, entry v y = accepted (@k_seq R _ k (@entry R n p) (entry q) rho) y
    & forall y : 'I_n, entry (compute_residual (N := numbers_of R) q v) y
        = residual (entry q) (@k_seq R _ k (@entry R n p) (entry q) rho) y].

(** ...and fractions of binary integers compute the same as the field of rationals. *)
Definition value (x : Q) : rat := (int_of_Z (Qnum x))%:~R / (int_of_Z (Z.pos (Qden x)))%:~R.
Definition values := map value.

Definition computed_in_fractions : Prop :=
  let QQ := fractions in let RR := numbers_of rat_realFieldType in
  (forall p : seq QQ, compute_is_law p = compute_is_law (N := RR) (values p))
  /\ [/\ forall p q : seq QQ, values (compute_coupled p q) = compute_coupled (N := RR) (values p) (values q),
      forall q v : seq QQ, values (compute_residual q v) = compute_residual (N := RR) (values q) (values v),
      forall k (p q : seq QQ), value (compute_alpha k p q) = compute_alpha (N := RR) k (values p) (values q),
      forall k (a b : seq QQ) H cap lower upper low high,
        compute_certificate k a b H cap lower upper low high
        = compute_certificate (N := RR) k (values a) (values b) H (value cap)
            (value lower) (value upper) (value low) (value high)
    & forall k (p q : seq QQ) rho,
        [/\ value (compute_beta p q rho) = compute_beta (N := RR) (values p) (values q) (value rho),
            value (compute_passed k p q rho)
              = compute_passed (N := RR) k (values p) (values q) (value rho),
            value (compute_excess k p q rho)
              = compute_excess (N := RR) k (values p) (values q) (value rho)
          & values (compute_k_seq k p q rho)
              = compute_k_seq (N := RR) k (values p) (values q) (value rho)]].

(** Both together: the optimum that is computed, and what an accepted certificate says. *)
Definition fractions_alpha : Prop := forall k (p q : seq Q),
  size p = size q ->
  compute_is_law (N := fractions) p -> compute_is_law (N := fractions) q ->
  is_optimum (@drafts _ k) (iid (@entry _ (size p) (values p))) (entry (values q))
    (value (compute_alpha (N := fractions) k p q)).

Definition fractions_certificate : Prop := forall k (a b : seq Q) H cap lower upper low high,
  compute_certificate (N := fractions) k a b H cap lower upper low high ->
  exists2 alpha, is_optimum (@drafts _ k) (@iid _ _ k (normalised (@entry _ (size a) (values a))))
      (normalised (entry (values b))) alpha
    & value lower <= alpha /\ alpha <= value upper.

(** * Part 6: from one token to texts (docs/theory/verification.md and walk-and-keep.md)

    A random thing is given by its expectations: [m f] is the mean of f.  So a rule is a program
    that draws tokens, throws coins and returns a text. *)

Section Texts.
Variables (R : realFieldType) (T : finType).

Definition random (A : Type) := (A -> R) -> R.
Definition ret A (a : A) : random A := fun f => f a.
Definition bind A B (m : random A) (k : A -> random B) : random B := fun f => m (fun a => k a f).
Definition draw (A : finType) (law : A -> R) : random A := fun f => \sum_a law a * f a.
Definition coin (h : R) : random bool := fun f => h * f true + (1 - h) * f false.

Local Notation "a <- m ; k" := (bind m (fun a => k)) (at level 70, m at next level, k at level 200).

(** A model gives the law of the next token after a text. *)
Definition model := seq T -> T -> R.
Definition is_model (t : model) := forall c, is_law (t c).

(** The probability of y after c, and that the text s after c, continued by t, begins with y. *)
Fixpoint path_prob (t : model) c y :=
  if y is z :: y' then t c z * path_prob t (rcons c z) y' else 1.
Fixpoint begins (t : model) c (s y : seq T) :=
  match y, s with
  | [::], _ => 1
  | z :: y', [::] => path_prob t c y
  | z :: y', x :: s' => if x == z then begins t (rcons c z) s' y' else 0
  end.

(** The output, continued by the target, has the target's law. *)
Definition lossless_text t c (out : random (seq T)) :=
  forall y, out (fun s => begins t c s y) = path_prob t c y.

Variables (t d : model).

(** Chain verification of n drafts after c. *)
Definition left_over c z := Num.max (t c z - d c z) 0.
Fixpoint chain n c : random (seq T) :=
  if n is n'.+1 then
    x <- draw (d c);
    b <- coin (Num.min 1 (t c x / d c x));
    if b then s <- chain n' (rcons c x); ret (x :: s)
    else z <- draw (fun z => left_over c z / total (left_over c)); ret [:: z]
  else z <- draw (t c); ret [:: z].

(** Walk and keep.  v gives the law of the next node of the walk, which may end instead; s is
    S/W.  The result is None if nothing at or below the node is kept, otherwise the accepted
    drafts and one token more. *)
Section Walk.
Variable v : model.
Definition kept s c z := Num.min (v c z) (s * t c z).
Definition weight_below s c z := Num.min (s * t c z / v c z) 1.
Definition keep_prob s c := (s - total (kept s c)) / (1 - total (kept s c)).
Definition step (c : seq T) : random (option T) :=
  fun f => \sum_z v c z * f (Some z) + (1 - total (v c)) * f None.
Definition keep s c : random (option (seq T)) :=
  b <- coin (keep_prob s c);
  if b then z <- draw (fun z => (s * t c z - kept s c z) / (s - total (kept s c))); ret (Some [:: z])
  else ret None.

Fixpoint walk n s c : random (option (seq T)) :=
  if n is n'.+1 then
    o <- step c;
    if o is Some x then
      r <- walk n' (weight_below s c x) (rcons c x);
      if r is Some y then ret (Some (x :: y)) else keep s c
    else keep s c
  else
    b <- coin s;
    if b then z <- draw (t c); ret (Some [:: z]) else ret None.
End Walk.

(** Block verification, with the weights and coins of its page. *)
Definition block_left w c z := Num.max (w * t c z - d c z) 0.
Definition block_keep w c : random (option (seq T)) :=
  let Z := total (block_left w c) in
  b <- coin (Z / (Z + 1 - w));
  if b then z <- draw (fun z => block_left w c z / Z); ret (Some [:: z]) else ret None.
Fixpoint block n w c : random (option (seq T)) :=
  if n is n'.+1 then
    x <- draw (d c);
    r <- block n' (Num.min (w * (t c x / d c x)) 1) (rcons c x);
    if r is Some y then ret (Some (x :: y)) else block_keep w c
  else
    b <- coin w;
    if b then z <- draw (t c); ret (Some [:: z]) else ret None.

(** What is certain to be kept; where nothing is, the mean is that of the empty function. *)
Definition certainly (m : random (option (seq T))) : random (seq T) :=
  fun f => m (fun o => if o is Some s then f s else 0).

(** The probability that y is drafted and accepted, with weight w before it. *)
Fixpoint block_accepts w c y :=
  if y is z :: y' then d c z * block_accepts (Num.min (w * (t c z / d c z)) 1) (rcons c z) y' else w.
(** The text s consists of accepted drafts and one token: the drafts begin with y. *)
Definition accepts_drafts (y s : seq T) : R := if (size y < size s)%N && seq.prefix y s then 1 else 0.

(** SpecTr's recursion over m chains, with any rule for m i.i.d. drafts at each position: the
    next drafts of the chains that agree so far are looked at together. *)
Variable rule : forall (c : seq T) m, {ffun 'I_m -> T} -> T -> R.
Fixpoint spectr n c m : random (seq T) :=
  if n is n'.+1 then
    o <- draw (fun o : {ffun 'I_m -> T} * T => rule c o.1 o.2);
    if o.2 \in drafts o.1 then
      s <- spectr n' (rcons c o.2) #|[set i | o.1 i == o.2]|; ret (o.2 :: s)
    else ret [:: o.2]
  else z <- draw (t c); ret [:: z].

(** Any rule for one chain of n drafts: the joint law of the drafts, of how many of them are
    accepted, and of the next token. *)
Definition outcome n : finType := prod_finType (prod_finType (tuple_finType n T) (ordinal_finType n.+1)) T.
Definition output n (o : outcome n) : seq T := rcons (take o.1.2 o.1.1) o.2.
Definition lossless_rule n (law : outcome n -> R) :=
  [/\ forall o, 0 <= law o,
      forall y, (size y <= n)%N ->
        \sum_(o : outcome n | take (size y) o.1.1 == y) law o = path_prob d [::] y
    & lossless_text t [::] (bind (draw law) (fun o => ret (output o)))].
Definition accepts_at_least n (law : outcome n -> R) y :=
  \sum_(o : outcome n | (size y <= o.1.2)%N && (take (size y) o.1.1 == y)) law o.

End Texts.

(** Chain verification. *)
Definition chain_lossless : Prop := forall (R : realFieldType) (T : finType) (t d : model R T) n c,
  is_model t -> is_model d -> lossless_text t c (chain t d n c).

(** Theorem 12.4, SpecTr's recursion. *)
Definition theorem_12_4 : Prop := forall (R : realFieldType) (T : finType) (t d : model R T) rule n c m,
  is_model t -> (forall c m, lossless (@iid R T m (d c)) (t c) (rule c m)) ->
  lossless_text t c (spectr t rule n c m).

(** Theorem 14.1, walk and keep, for any walk; s is at most one, and one at the root. *)
Definition theorem_14_1 : Prop := forall (R : realFieldType) (T : finType) (t v : model R T) n s c,
  is_model t -> (forall c z, 0 <= v c z) -> (forall c, total (v c) <= 1) -> 0 <= s <= 1 ->
  forall y, certainly (walk t v n s c) (fun out => begins t c out y) = s * path_prob t c y.

(** Theorem 12.1, block verification: lossless, and accepts y with probability d(y) w. *)
Definition theorem_12_1 : Prop := forall (R : realFieldType) (T : finType) (t d : model R T) n c,
  is_model t -> is_model d ->
  lossless_text t c (certainly (block t d n 1 c))
  /\ forall y, (size y <= n)%N ->
     certainly (block t d n 1 c) (accepts_drafts R y) = block_accepts t d 1 c y.

(** Theorem 12.2: no memoryless lossless rule for one chain accepts any drafts with a larger
    probability than block verification. *)
Definition theorem_12_2 : Prop := forall (R : realFieldType) (T : finType) (t d : model R T) n law,
  is_model t -> is_model d -> @lossless_rule R T t d n law ->
  forall y, (size y <= n)%N -> accepts_at_least law y <= block_accepts t d 1 [::] y.
