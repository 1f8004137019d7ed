"""Check on random trees that walk and keep accepts as much as rules that verify token by token.

    python -m benchmarks.drawn_trees [--quick] [--save] [--seed N]

A node of a tree has certain children, the most probable tokens, and at most one drawn child.  Both
models, with zeros and ties, and the number of children after each path are drawn at random.  The
mean number of accepted drafts is computed in fractions, over all values of the drawn children.
Walk and keep must accept at least as many drafts as target-only sampling, and at least as many as
SpecTr's recursion over the greedy rule (Theorem 23.6 of docs/theory/certain-and-drawn.md).  At a
node without a drawn child, the greedy rule is target-only sampling.
"""

import math
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path as File
from typing import Any, NamedTuple

import numpy as np

from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from figures.progress import progress
from otm._core.probs.sparse import SparseProbs
from otm.coupling import GreedyRule
from otm.decoding.draft_tree import DraftNode
from otm.decoding.reading import Path
from otm.decoding.verifiers.recursion import build_tree_plan
from otm.drafts.top import most_probable
from otm.gain.tokens_given_drafts import tokens_by_target_only, tokens_by_walk

RESULTS = File(__file__).parent / "results" / "drawn_trees.json"
MOST_VALUES = 64
"""Largest number of values of all drawn children together."""

Probs = Callable[[Path], SparseProbs]


class Instance(NamedTuple):
    """Two models, and a tree: certain children and whether another is drawn, after each path."""

    target: dict[Path, SparseProbs]
    draft: dict[Path, SparseProbs]
    certain: dict[Path, list[int]]
    draws: dict[Path, bool]
    depth: int


class Accepted(NamedTuple):
    """Mean number of accepted drafts by rule."""

    walk: Fraction
    target_only: Fraction
    greedy: Fraction


def random_instance(rng: np.random.Generator, most: int = MOST_VALUES) -> Instance:
    """Draw models of two to five tokens, and a tree with a drawn child and two or three levels."""
    while True:
        size, depth = int(rng.integers(2, 6)), int(rng.integers(2, 4))
        found = Instance({}, {}, {}, {}, depth)
        count = _grow(found, (), size, rng)
        if len(found.certain) > 1 and any(found.draws.values()) and count <= most:
            return found


def _grow(instance: Instance, path: Path, size: int, rng: np.random.Generator) -> int:
    """Draw both models and the children after a path and below; return the number of values."""
    instance.target[path] = _random_probs(size, rng)
    if len(path) == instance.depth or (path and rng.random() < 0.2):
        return 1
    draft = instance.draft[path] = _random_probs(size, rng)
    certain = int(rng.integers(0, min(draft.tokens.size, 3) + 1))
    draws = certain < draft.tokens.size and (certain == 0 or rng.random() < 0.7)
    order = draft.tokens[most_probable(draft.probabilities, draft.tokens.size)].tolist()
    instance.certain[path], instance.draws[path] = order[:certain], draws
    below = [
        _grow(instance, (*path, token), size, rng) for token in order[: None if draws else certain]
    ]
    return math.prod(below[:certain]) * (sum(below[certain:]) if draws else 1)


def _random_probs(size: int, rng: np.random.Generator) -> SparseProbs:
    """Draw probabilities from small weights, with zeros and ties."""
    while not any(weights := (rng.integers(0, 6, size) * (rng.random(size) < 0.8)).tolist()):
        pass
    return SparseProbs.from_dense([Fraction(weight, sum(weights)) for weight in weights])


def trees(instance: Instance, path: Path = ()) -> Iterator[tuple[Fraction, DraftNode]]:
    """Yield each tree that can be drawn below a path, with its probability."""
    if path not in instance.certain:
        yield Fraction(1), DraftNode(path)
        return
    certain, draft = instance.certain[path], instance.draft[path]
    ways: list[tuple[Fraction, list[int]]] = [(Fraction(1), certain)]
    if instance.draws[path]:
        others = [x for x in draft.tokens.tolist() if x not in certain]
        mass = sum(draft.of(x) for x in others)
        ways = [(draft.of(x) / mass, [*certain, x]) for x in others]
    kind = "Greedy" if instance.draws[path] else "Top"
    for probability, tokens in ways:
        partial: list[tuple[Fraction, list[DraftNode]]] = [(probability, [])]
        for token in tokens:
            below = list(trees(instance, (*path, token)))
            partial = [(p * q, [*before, child]) for p, before in partial for q, child in below]
        for p, children in partial:
            yield p, DraftNode(path, draft if kind == "Greedy" else None, children, kind)


def accepted(instance: Instance) -> Accepted:
    """Return the mean number of accepted drafts of each rule, over all drawn values."""
    target, depth = instance.target.__getitem__, instance.depth
    plans: dict[tuple[Path, tuple[int, ...]], dict[int, Any]] = {}
    sums = [Fraction(0)] * 3
    for probability, tree in trees(instance):
        of_tree = (
            tokens_by_walk(tree, target, depth)[depth] - 1,
            tokens_by_target_only(tree, target, depth)[depth] - 1,
            _accepted_by_greedy(tree, target, plans),
        )
        sums = [s + probability * mean for s, mean in zip(sums, of_tree, strict=True)]
    return Accepted(*sums)


def _accepted_by_greedy(node: DraftNode, target: Probs, plans: dict[Any, dict[int, Any]]) -> Any:
    """Return the mean number of accepted drafts of SpecTr's recursion below a node."""
    tokens = tuple(child.token for child in node.children)
    if (node.path, tokens) not in plans:
        probs = target(node.path)
        if node.draft_kind == "Greedy":
            draft = node.checked_draft_probs("Greedy")
            plan = build_tree_plan(GreedyRule, draft, probs, len(tokens), "Greedy")
            outputs = plan.conditional(list(tokens)).tolist()
            plans[node.path, tokens] = dict(zip(plan.problem.tokens.tolist(), outputs, strict=True))
        else:
            plans[node.path, tokens] = {token: probs.of(token) for token in tokens}
    chance = plans[node.path, tokens]
    return sum(
        (
            chance.get(child.token, 0) * (1 + _accepted_by_greedy(child, target, plans))
            for child in node.children
        ),
        Fraction(0),
    )


def compared(count: int, seed: int, most: int = MOST_VALUES) -> list[Accepted]:
    """Return the means of random trees with at most this number of values of drawn children."""
    rng = np.random.default_rng(seed)
    numbers = progress(range(count), count, "drawn trees")
    return [accepted(random_instance(rng, most)) for _ in numbers]


def summary(means: list[Accepted]) -> dict[str, Any]:
    """Summarise the differences between walk and keep and each other rule."""
    record: dict[str, Any] = {"trees": len(means)}
    for name in ("target_only", "greedy"):
        more = [each.walk - getattr(each, name) for each in means]
        record[name] = {
            "least": str(min(more)),
            "mean": float(sum(more) / len(more)),
            "largest": float(max(more)),
            "strictly more": sum(each > 0 for each in more),
            "less": sum(each < 0 for each in more),
        }
    return record


def main() -> None:
    """Run the benchmark from the command line."""
    parser = command(__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of the random trees")
    arguments = options_of(parser)
    start = time.perf_counter()
    record = summary(compared(20 if arguments.quick else 20_000, arguments.seed))
    record["seconds"] = round(time.perf_counter() - start, 1)
    for name in ("target_only", "greedy"):
        print(f"walk and keep minus {name.replace('_', '-')}: {record[name]}")
    print(f"{record['trees']:,} trees in {record['seconds']} s")
    if any(record[name]["less"] for name in ("target_only", "greedy")):
        raise SystemExit("walk and keep accepts less on some tree: Theorem 23.6 does not hold")
    if arguments.save:
        keep({**machine("numpy"), "seed": arguments.seed, **record}, RESULTS)


if __name__ == "__main__":
    main()
