(** Part 4: an instance with what Python computes in fractions, and whether the functions of
    Computable.v agree in every number.  compare.py writes Instances.v, a list of these. *)

From Coq Require Import QArith.
From mathcomp Require Import ssreflect ssrfun ssrbool eqtype ssrnat seq.
From OTM Require Import Computable.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

(** The weights, the claims, and whether otm/certificate.py accepts them. *)
Record claim := Claim {
  c_cut : seq nat; c_cap : Q; c_lower : Q; c_upper : Q; c_low : Q; c_high : Q; c_holds : bool }.

Record instance := Instance {
  k : nat; draft : seq Q; target : seq Q; draft_weights : seq Q; target_weights : seq Q;
  alpha : Q;
  coupled : seq Q; overlap : Q; coupled_residual : seq Q;
  rho : Q; excess : Q; passed : Q; k_seq : seq Q; k_seq_residual : seq Q;
  claims : seq claim }.

Definition same (x y : Q) := Qeq_bool x y.
Definition all_same := fun x y : seq Q => (size x == size y) && all2 same x y.

Section Agrees.
Variable i : instance.
Let p : seq fractions := draft i.
Let q : seq fractions := target i.

(** A residual law is compared where it is drawn from; Python then has one. *)
Definition same_residual v expected :=
  (Qeq_bool (sum (N := fractions) v) 1) || all_same (compute_residual q v) expected.

Definition claim_agrees c :=
  compute_certificate (N := fractions) (k i) (draft_weights i) (target_weights i) (c_cut c)
    (c_cap c) (c_lower c) (c_upper c) (c_low c) (c_high c) == c_holds c.

Definition agrees :=
  let c := compute_coupled p q in
  let v := compute_k_seq (k i) p q (rho i) in
  [&& compute_is_law p, compute_is_law q, same (compute_alpha (k i) p q) (alpha i),
      all_same c (coupled i), same (compute_overlap p q) (overlap i),
      same_residual c (coupled_residual i),
      same (compute_excess (k i) p q (rho i)) (excess i),
      same (compute_passed (k i) p q (rho i)) (passed i), all_same v (k_seq i),
      same_residual v (k_seq_residual i) & all claim_agrees (claims i)].

End Agrees.

(** The negative control: the closed form without its order. *)
Definition unordered_alpha k (p q : seq fractions) : fractions :=
  least_prefix k p q (zero fractions) (zero fractions)
    [seq y <- tokens p | less (zero fractions) (at_token p y)].

Definition all_agree := all agrees.
Definition found_wrong :=
  count (fun i => ~~ same (unordered_alpha (k i) (draft i) (target i)) (alpha i)).
