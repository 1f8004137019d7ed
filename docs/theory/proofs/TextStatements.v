(** Part 6: from one token to texts.  Definitions and statements, to be held against
    docs/theory/verification.md and walk-and-keep.md.

    A random thing is given by its expectations: [m f] is the mean of f.  So a rule is a program
    that draws tokens, throws coins and returns a text. *)

From mathcomp Require Import all_ssreflect all_algebra.
From OTM Require Import Statements.
Import Order.TTheory GRing.Theory Num.Theory.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Local Open Scope ring_scope.

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

(** Theorem 12.2: no lossless rule for one chain accepts any drafts with a larger probability
    than block verification. *)
Definition theorem_12_2 : Prop := forall (R : realFieldType) (T : finType) (t d : model R T) n law,
  is_model t -> is_model d -> @lossless_rule R T t d n law ->
  forall y, (size y <= n)%N -> accepts_at_least law y <= block_accepts t d 1 [::] y.
