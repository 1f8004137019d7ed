(** Part 4: the functions that are run.  They are written once, on lists, for any kind of
    numbers: Bridge.v proves them right over an ordered field, and that fractions of binary
    integers give the same; Instances.v, which compare.py writes, runs them on the latter.
    The probability of token y is entry y of a list. *)

From Coq Require Import QArith.
From mathcomp Require Import ssreflect ssrfun ssrbool eqtype ssrnat seq.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Record numbers := Numbers {
  num :> Type;
  zero : num;
  one : num;
  add : num -> num -> num;
  sub : num -> num -> num;
  mul : num -> num -> num;
  div : num -> num -> num;
  le : num -> num -> bool
}.

Section Computable.
Variable N : numbers.
Implicit Types (p q v a b : seq N) (x : N) (y z : nat) (s H : seq nat).

Local Notation "x + y" := (add x y).
Local Notation "x - y" := (sub x y).
Local Notation "x * y" := (mul x y).
Local Notation "x / y" := (div x y).
Local Notation "x <= y" := (le x y).
Local Notation "0" := (zero N).
Local Notation "1" := (one N).

Definition less (x x' : N) := ~~ (x' <= x).
Definition least (x x' : N) := if x <= x' then x else x'.
Fixpoint power x k := if k is k'.+1 then x * power x k' else 1.
Definition sum := foldr (@add N) 0.
Definition at_token p y := nth 0 p y.
Definition tokens p := iota 0%N (size p).
Definition on_tokens p (f : nat -> N) := [seq f y | y <- tokens p].

Definition compute_is_law p := all (le 0) p && (sum p <= 1) && (1 <= sum p).

(** Part 1: one draft. *)
Definition compute_coupled p q := on_tokens p (fun y => least (at_token p y) (at_token q y)).
Definition compute_overlap p q := sum (compute_coupled p q).
Definition compute_residual q v :=
  on_tokens q (fun y => (at_token q y - at_token v y) / (1 - sum v)).

(** Part 2: tokens by ascending q/p, and the least value of their prefixes. *)
Section Order.
Variable before : rel nat.
Fixpoint insert y s := if s is z :: s' then if before y z then y :: s else z :: insert y s' else [:: y].
Definition in_order := foldr insert [::].
End Order.

Definition by_ratio p q y z := at_token q y * at_token p z <= at_token q z * at_token p y.

Fixpoint least_prefix k p q P Q s :=
  let value := (Q + 1) - power P k in
  if s is y :: s' then least value (least_prefix k p q (P + at_token p y) (Q + at_token q y) s')
  else value.

Definition compute_alpha k p q :=
  least_prefix k p q 0 0
    (in_order (by_ratio p q) [seq y <- tokens p | less 0 (at_token p y)]).

(** The check of a certificate, step by step as in otm/certificate.py. *)
Definition compute_normalised a := [seq x / sum a | x <- a].
Definition compute_capped p q cap :=
  on_tokens p (fun y => least (at_token q y) (cap * at_token p y)).
Definition at_set p (H : seq nat) := sum [seq at_token p y | y <- H].

Fixpoint levels_hold k p v (P V : N) s :=
  (V <= 1 - power (1 - P) k) &&
  if s is y :: s' then levels_hold k p v (P - at_token p y) (V - at_token v y) s' else true.

Definition compute_weights a := all (le 0) a && less 0 (sum a).
Definition compute_cut_holds k p q H upper :=
  (1 <= upper) || ((at_set q H + 1) - power (at_set p H) k <= upper).
Definition compute_mass_holds k a b p q cap :=
  let v := compute_capped p q cap in
  let below := [seq y <- tokens p |
    less 0 (at_token a y) && less (at_token v y) (cap * at_token p y)] in
  levels_hold k p v 1 (sum v) (in_order (by_ratio a b) below).
Definition compute_certificate k a b H cap lower upper low high :=
  let p := compute_normalised a in
  let q := compute_normalised b in
  [&& size a == size b, compute_weights a && compute_weights b, (0 < k)%N,
      (low <= lower) && (upper <= high),
      uniq H && all (fun y => y < size a)%N H, compute_cut_holds k p q H upper,
      0 <= cap, compute_mass_holds k a b p q cap & lower <= sum (compute_capped p q cap)].

(** Part 3: k-Seq. *)
Definition compute_beta p q rho :=
  sum (on_tokens p (fun y => least (at_token p y) (at_token q y / rho))).
Definition compute_passed k p q rho := 1 - power (1 - compute_beta p q rho) k.
Definition compute_excess k p q rho := compute_passed k p q rho - rho * compute_beta p q rho.
Fixpoint geometric_sum x k := if k is k'.+1 then geometric_sum x k' + power x k' else 0.
Definition compute_k_seq k p q rho :=
  let tries := geometric_sum (1 - compute_beta p q rho) k in
  on_tokens p (fun y => tries * least (at_token p y) (at_token q y / rho)).

End Computable.

(** Fractions of binary integers, always in lowest terms. *)
Definition fractions : numbers := @Numbers Q 0%Q 1%Q
  (fun x y => Qred (x + y)) (fun x y => Qred (x - y)) (fun x y => Qred (x * y))
  (fun x y => Qred (x / y)) Qle_bool.
