"""Write Instances.v: small problems with what OTM computes for them in fractions.

Coq computes the same numbers with the functions of Computable.v and proves that all are equal; the
negative control, the closed form without its order, must differ.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any

from otm import Problem, alpha, certificate, solve
from otm._core.arithmetic import rounded
from otm.coupling import KSeq, MaximalCoupling
from otm.optimum import optimal_division_factor
from otm.optimum.division_factor import excess
from otm.testing import INSTANCES

COUNT = 500
KINDS = ("independent", "sparse", "equal", "disjoint", "ties", "one token", "many digits")


def weights(rng: random.Random, kind: str) -> tuple[list[int], list[int], int]:
    """Draw weights of a draft and a target distribution, of a kind that goes wrong, and k."""
    n = rng.randint(2 if kind == "disjoint" else 1, 6)
    top = {"ties": 2, "many digits": 10**9}.get(kind, 12)
    least = 0 if kind in ("sparse", "ties", "one token") else 1
    draft, target = ([rng.randint(least, top) for _ in range(n)] for _ in range(2))
    if kind == "equal":
        target = list(draft)
    elif kind == "disjoint":
        split = rng.randint(1, n - 1)
        draft, target = draft[:split] + [0] * (n - split), [0] * split + target[split:]
    elif kind == "one token":
        draft = [0] * n
    for row in (draft, target):
        row[rng.randrange(n)] += not any(row)
    return draft, target, rng.randint(1, 5)


def problems() -> Iterator[tuple[str, list[int], list[int], int]]:
    """Yield the named instances of the tests, then drawn ones, 500 in all."""
    for name, (draft, target, k) in INSTANCES.items():
        yield name, draft, target, k
    for number in range(COUNT - len(INSTANCES)):
        name = f"{KINDS[number % len(KINDS)]} {number}"
        yield name, *weights(random.Random(name), KINDS[number % len(KINDS)])


def claims(problem: Problem) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield certificates, right and wrong ones, and whether the checker accepts them."""
    right = solve(problem.draft, problem.target, k=problem.k).certificate
    written, small = right.to_document(), Fraction(1, 1000)
    for changed in (
        {},
        {"lower": right.lower - small},
        {"lower": right.lower + small},
        {"lower": right.lower - 2 * small, "upper": right.upper - small},
        {"cap": right.cap + Fraction(1, 8)},
        {"cap": right.cap / 2},
        {"cap": right.cap / 2, "lower": right.lower / 2},
        {"cut": []},
        {"cut": [], "upper": Fraction(1)},
        {"cut": [*range(problem.n)]},
        {"cut": [0, 0]},
    ):
        numbers = {name: getattr(right, name) for name in ("cap", "lower", "upper")} | changed
        cut = numbers.pop("cut", written["cut"])
        lower, upper = numbers["lower"], numbers["upper"]
        numbers["gap"] = upper - lower
        document = written | {
            name: f"{value.numerator}/{value.denominator}" for name, value in numbers.items()
        }
        document |= {
            "cut": cut, "plan": None, "status": "exact" if lower == upper else "bounded",
            "interval": [rounded(lower, -math.inf).hex(), rounded(upper, math.inf).hex()],
        }  # fmt: skip
        document["sha256"] = certificate.digest(document)
        try:
            certificate.check(document)
        except certificate.CertificateRefusedError:
            yield document, False
        else:
            yield document, True


def rational(value: Fraction) -> str:
    """Write a number for Coq."""
    value = Fraction(value)
    return f"({value.numerator}#{value.denominator})"


def row(values: Iterable[Fraction]) -> str:
    """Write a list of numbers for Coq."""
    return "[::" + ";".join(map(rational, values)) + "]"


def law_of(residual: Any, n: int) -> list[Fraction]:
    """Return the probabilities of a residual, which is stored as cumulative weights."""
    law, before = [Fraction(0)] * n, Fraction(0)
    for token, upto in zip(residual.tokens.tolist(), residual.cumulative.tolist(), strict=True):
        law[token], before = Fraction(upto - before) / residual.cumulative[-1], upto
    return law


def claim(document: dict[str, Any], holds: bool) -> str:
    """Write a certificate and the checker's verdict for Coq."""
    numbers = [Fraction(*certificate.ratio(document[name])) for name in ("cap", "lower", "upper")]
    numbers += [Fraction(float.fromhex(end)) for end in document["interval"]]
    cut = "[::" + ";".join(f"{token}%N" for token in document["cut"]) + "]"
    return f"Claim {cut} {' '.join(map(rational, numbers))} {str(holds).lower()}"


def instance(draft: list[int], target: list[int], k: int) -> str:
    """Write a problem and all that OTM computes for it."""
    p, q = ([Fraction(x, sum(laws)) for x in laws] for laws in (draft, target))
    problem = Problem(p, q, k)
    coupling = MaximalCoupling(Problem(p, q, 1))
    rho = Fraction(math.ceil(8 * optimal_division_factor(problem)), 8)  # valid, few digits
    k_seq = KSeq(problem, rho)
    checked = list(claims(problem))
    laws = [certificate.weights(checked[0][0][name], name) for name in ("draft", "target")]
    fields = [
        f"{k}%N", row(p), row(q), *map(row, laws), rational(alpha(p, q, k=k)),
        row(coupling.accepted_mass), rational(coupling.acceptance),
        row(law_of(coupling.residual, len(p))),
        rational(rho), rational(excess(problem, rho)), rational(k_seq.acceptance_by_test),
        row(k_seq.accepted_mass), row(law_of(k_seq.residual, len(p))),
        "[::" + ";\n  ".join(claim(*one) for one in checked) + "]",
    ]  # fmt: skip
    return "Instance " + " ".join(fields)


def differs(draft: list[int], target: list[int], k: int) -> bool:
    """Whether prefixes of the tokens in their own order, not that of q/p, give another minimum."""
    p, q = ([Fraction(x, sum(laws)) for x in laws] for laws in (draft, target))
    kept = [token for token, x in enumerate(p) if x]
    drafted, covered = (accumulate([law[y] for y in kept], initial=Fraction(0)) for law in (p, q))
    least = min(below + 1 - inside**k for inside, below in zip(drafted, covered, strict=True))
    return least != alpha(p, q, k=k)


def main(path: Path) -> None:
    """Write the instances to a file."""
    drawn = list(problems())
    listed = "\n".join(
        f"(* {name} *) Definition i{at} : instance := {instance(*numbers)}."
        for at, (name, *numbers) in enumerate(drawn)
    )
    names = "; ".join(f"i{at}" for at in range(COUNT))
    wrong = sum(differs(*numbers) for _, *numbers in drawn)
    text = f"""(** Written by compare.py: do not edit. *)

From Coq Require Import QArith.
From mathcomp Require Import ssreflect ssrfun ssrbool eqtype ssrnat seq.
From OTM Require Import Computable Compare.

Local Open Scope Q_scope.

{listed}

Definition instances : seq instance := [:: {names}].

Lemma how_many : size instances = {COUNT}%N.
Proof. by []. Qed.

Lemma computed_as_in_python : all_agree instances = true.
Proof. vm_cast_no_check (erefl true). Qed.

Lemma control_found : found_wrong instances = {wrong}%N.
Proof. vm_cast_no_check (erefl {wrong}%N). Qed.
"""
    path.write_text(text, encoding="utf-8")
    print(f"{COUNT} problems written; {wrong} of them distinguish the control")
