"""Compute the answers of the test vectors in fractions, with OTM's reference implementations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.probs.sparse import SparseProbs
from otm.audit.vectors.choices import FACTOR, PROBABILITIES, UNIFORMS
from otm.audit.vectors.problems import Problem
from otm.coupling import KSeq, RecursiveRejection
from otm.decoding.draft_tree import DraftNode
from otm.decoding.verifiers.walk_and_keep import Walk
from otm.kernels.block import numpy as block_kernel
from otm.kernels.chain import numpy as chain_kernel
from otm.optimum import optimal_division_factor
from otm.problem import Problem as OneTokenProblem
from otm.testing import exact_distribution, exact_distribution_of_select

LARGEST = 2**53
"""Integers of the file are smaller, so that every JSON reader reads them exactly."""

Expected = dict[str, Any]


def fractions(rows: Sequence[Any], unit: int) -> npt.NDArray[Any]:
    """Return integers as an object array of fractions with a common denominator."""
    whole = np.array(rows, dtype=object)
    parts: npt.NDArray[Any] = np.vectorize(lambda x: Fraction(x, unit), otypes=[object])(whole)
    return parts


def integers(weights: Iterable[Fraction]) -> list[int] | None:
    """Return the smallest integers in the same proportions, or None if one is too large."""
    weights = list(weights)
    common = math.lcm(*(weight.denominator for weight in weights))
    whole = [int(weight * common) for weight in weights]
    divisor = math.gcd(*whole)
    reduced = [weight // divisor for weight in whole]
    return reduced if sum(reduced) < LARGEST else None


def as_pair(value: Fraction) -> list[int]:
    """Return a fraction as [numerator, denominator]."""
    return [value.numerator, value.denominator]


def row_of(probs: dict[int, Fraction], size: int) -> list[int] | None:
    """Return a distribution over tokens as integers: [V]."""
    return integers(probs.get(token, Fraction(0)) for token in range(size))


def one_chain(verify: Callable[..., Any]) -> Callable[[Problem], Expected | None]:
    """Return a function that computes the answer with a kernel for one chain."""

    def expected(problem: Problem) -> Expected | None:
        target = fractions(problem["target"], PROBABILITIES)
        gamma, size = len(problem["drafts"]), target.shape[1]
        draft = fractions(problem["draft"], PROBABILITIES).reshape(gamma, size)
        coins = fractions(problem["uniforms"], UNIFORMS)
        drafts = np.array(problem["drafts"], dtype=np.int64)

        # The uniforms of the last token stay symbolic; their paths give its exact distribution.
        def output(last: npt.NDArray[Any]) -> tuple[int, int]:
            uniforms = np.append(coins, last)
            found = verify(target[None], draft[None], drafts[None], uniforms[None])
            accepted = int(found.accepted[0])
            return accepted, int(found.tokens[0, accepted])

        probs = exact_distribution(output, 2)
        (accepted,) = {count for count, _ in probs}
        row = row_of({token: probability for (_, token), probability in probs.items()}, size)
        return None if row is None else {"accepted": accepted, "next": row}

    return expected


def one_token(problem: Problem) -> OneTokenProblem:
    """Return a problem of one token in fractions."""
    draft, target = (fractions(problem[name], PROBABILITIES) for name in ("draft", "target"))
    return OneTokenProblem(draft, target, len(problem["drafts"]))


def smallest_factor(problem: Problem) -> int:
    """Return the smallest valid division factor of k-Seq, rounded up to a multiple of 1/16."""
    return math.ceil(Fraction(optimal_division_factor(one_token(problem))) * FACTOR)


def k_seq(problem: Problem) -> Expected | None:
    """Compute the accepted draft of k-Seq, or the distribution of the token after rejections."""
    plan = KSeq(one_token(problem), rho=Fraction(problem["factor"], FACTOR))
    uniforms = fractions(problem["uniforms"], UNIFORMS)
    passed = uniforms < plan.accept_probability[problem["drafts"]]
    if passed.any():
        return {"index": int(passed.argmax()), "next": None}
    row = integers(plan.residual.probs(len(problem["target"])))
    return None if row is None else {"index": -1, "next": row}


def recursive_rejection(problem: Problem) -> Expected | None:
    """Compute each draft's acceptance probability after rejections, and the last residual."""
    probs = exact_distribution_of_select(RecursiveRejection(one_token(problem)), problem["drafts"])
    reached, accept = Fraction(1), []
    for i in range(len(problem["drafts"])):
        wins = sum((p for (_, index), p in probs.items() if index == i), Fraction(0))
        accept.append(wins / reached)
        reached -= wins
        if not reached:
            return {"accept": [*map(as_pair, accept)], "next": None}
    rejected = {token: p for (token, index), p in probs.items() if index < 0}
    row = row_of(rejected, len(problem["target"]))
    return None if row is None else {"accept": [*map(as_pair, accept)], "next": row}


def sparse(parts: Sequence[int]) -> SparseProbs:
    """Return a row without its zeros."""
    tokens = [token for token, x in enumerate(parts) if x]
    return SparseProbs(tokens, fractions([parts[x] for x in tokens], PROBABILITIES))


def token_after(walk: Walk) -> dict[int, Fraction]:
    """Return the distribution of the token after a node of the walk, if this node is kept."""
    return exact_distribution(lambda uniforms: walk.token_after(lambda _: uniforms), 1)


def walk_and_keep(problem: Problem) -> Expected | None:
    """Compute the keep probability of each node of a walk, and the token after a kept node."""
    # With one draft after each node, the draft always wins: its distribution is the winner's.
    root = node = DraftNode()
    for token, winner in zip(problem["drafts"], problem["winner"], strict=True):
        child = DraftNode((*node.path, token))
        node.draft_probs, node.children = sparse(winner), [child]
        node = child
    walk = Walk.begin(root, lambda path: sparse(problem["target"][len(path)]))
    keep: list[list[int] | None] = []
    rows: list[list[int] | None] = []
    for token in [*problem["drafts"], None]:
        probability = Fraction(walk.keep_probability if walk.share else 0)
        # At a weight of 1 and a residual mass of 0, the test is 0/0: the rule never reaches it.
        keep.append(None if walk.share == 1 and not probability else as_pair(probability))
        rows.append(None)
        if probability:
            rows[-1] = row_of(token_after(walk), len(problem["target"][0]))
            if rows[-1] is None:
                return None
        if token is None or not walk.share:
            break
        walk = walk.to(token)
    missing = len(problem["target"]) - len(keep)
    return {"keep": keep + [[0, 1]] * missing, "next": rows + [None] * missing}


EXPECTED: dict[str, Callable[[Problem], Expected | None]] = {
    "chain": one_chain(chain_kernel.verify),
    "block": one_chain(block_kernel.verify),
    "k-Seq": k_seq,
    "recursive rejection": recursive_rejection,
    "walk and keep": walk_and_keep,
}
"""The function that computes the answer for each rule, or None if an integer is too large."""
