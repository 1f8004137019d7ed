"""Each answer in the file of test vectors, recomputed from first principles in fractions.

Nothing of `otm.audit.vectors` but the file is used.  The formulas differ from those of OTM's
references: weights of block verification are minima over products, tests are conditional
probabilities, and rows after a rejection are the only ones that make the output lossless.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import pytest

from otm.audit.vectors import path

DOCUMENT = json.loads(path().read_text(encoding="utf-8"))
Vector = dict[str, Any]
Row = list[Fraction]


def of_rule(rule: str) -> list[Vector]:
    return [vector for vector in DOCUMENT["problems"] if vector["rule"] == rule]


def exact(rows: Any, scale: int = 1024) -> Any:
    """Divide integers in nested lists by a scale."""
    return [exact(x, scale) for x in rows] if isinstance(rows, list) else Fraction(rows, scale)


def normalised(weights: Sequence[int]) -> Row:
    return [Fraction(weight, sum(weights)) for weight in weights]


def best_weight(ratios: Sequence[Fraction]) -> Fraction:
    """Weight of a prefix: the smallest product of its last 0, 1, 2, … ratios."""
    return min(math.prod(ratios[i:], start=Fraction(1)) for i in range(len(ratios) + 1))


class Chain:
    """Block verification of one chain, by probabilities of prefixes."""

    def __init__(self, target: list[Row], draft: list[Row], drafts: Sequence[int]) -> None:
        self.target, self.draft, self.n = target, draft, len(drafts)
        self.ratios = [t[x] / d[x] for t, d, x in zip(target, draft, drafts, strict=False)]

    def at_least(self, i: int) -> Fraction:
        """Probability that at least the first i drafts are accepted, given these drafts."""
        return best_weight(self.ratios[:i])

    def more(self, i: int) -> Row:
        """Probability that the next draft is z, and that it is accepted too: [V]."""
        if i == self.n:
            return [Fraction(0)] * len(self.target[i])
        pairs = zip(self.target[i], self.draft[i], strict=True)
        return [d * best_weight([*self.ratios[:i], t / d]) if d else Fraction(0) for t, d in pairs]

    def test(self, i: int) -> Fraction | None:
        """Probability of exactly i accepted drafts, given at most i; None for 0/0."""
        at_most = 1 - sum(self.more(i))
        return (self.at_least(i) - sum(self.more(i))) / at_most if at_most else None

    def is_next(self, i: int, row: Row) -> bool:
        """Whether a row of the next token makes the output after i drafts lossless."""
        exactly = self.at_least(i) - sum(self.more(i))
        both = zip(self.target[i], self.more(i), row, strict=True)
        return all(self.at_least(i) * t == more + exactly * x for t, more, x in both)


def chain_answer(vector: Vector) -> bool:
    target, draft = exact(vector["target"]), exact(vector["draft"])
    accepted = 0
    for x, u, t, d in zip(vector["drafts"], vector["uniforms"], target, draft, strict=False):
        if not Fraction(u, 4096) * d[x] < t[x]:
            break
        accepted += 1
    row = normalised(vector["expected"]["next"])
    if accepted == len(vector["drafts"]):
        lossless = row == target[-1]
    else:
        t, d = target[accepted], draft[accepted]
        missed = 1 - sum(map(min, t, d))
        lossless = [min(a, b) + missed * x for a, b, x in zip(t, d, row, strict=True)] == t
    return lossless and accepted == vector["expected"]["accepted"]


def block_answer(vector: Vector) -> bool:
    chain = Chain(exact(vector["target"]), exact(vector["draft"]), vector["drafts"])
    passed = [0]
    for i, u in enumerate(vector["uniforms"], start=1):
        test = chain.test(i)
        if test is not None and Fraction(u, 4096) < test:
            passed.append(i)
    accepted = max(passed)
    row = normalised(vector["expected"]["next"])
    return accepted == vector["expected"]["accepted"] and chain.is_next(accepted, row)


def k_seq_answer(vector: Vector) -> bool:
    (target, draft), rho = (
        exact([vector["target"], vector["draft"]]),
        Fraction(vector["factor"], 16),
    )
    mass = [min(d, t / rho) for t, d in zip(target, draft, strict=True)]
    missed, k = 1 - sum(mass), len(vector["drafts"])
    if 1 - missed**k > rho * sum(mass):
        return False  # the factor is not valid
    tests = zip(vector["drafts"], vector["uniforms"], strict=True)
    passed = [Fraction(u, 4096) * rho * draft[x] < target[x] for x, u in tests]
    if any(passed):
        return bool(vector["expected"] == {"index": passed.index(True), "next": None})
    row = normalised(vector["expected"]["next"])
    accepted = [sum(m * missed**i for i in range(k)) for m in mass]
    lossless = [a + missed**k * x for a, x in zip(accepted, row, strict=True)] == target
    return lossless and vector["expected"]["index"] == -1


def recursive_answer(vector: Vector) -> bool:
    target, draft = exact([vector["target"], vector["draft"]])
    left, reached, output, accept = target, Fraction(1), [Fraction(0)] * len(target), []
    for x in vector["drafts"]:
        accept.append(min(Fraction(1), left[x] / draft[x]))
        if accept[-1] == 1:
            break
        both = [*map(min, left, draft)]
        output = [a + reached * b for a, b in zip(output, both, strict=True)]
        reached *= 1 - sum(both)
        left = [(a - b) / (1 - sum(both)) for a, b in zip(left, both, strict=True)]
    if [Fraction(*pair) for pair in vector["expected"]["accept"]] != accept:
        return False
    if accept[-1] == 1:
        return vector["expected"]["next"] is None
    row = normalised(vector["expected"]["next"])
    return [a + reached * x for a, x in zip(output, row, strict=True)] == target


def walk_answer(vector: Vector) -> bool:
    walk = Chain(exact(vector["target"]), exact(vector["winner"]), vector["drafts"])
    keeps, rows = vector["expected"]["keep"], vector["expected"]["next"]
    for i, (keep, row) in enumerate(zip(keeps, rows, strict=True)):
        if walk.test(i) != (keep if keep is None else Fraction(*keep)) or bool(row) != bool(
            walk.test(i)
        ):
            return False
        if row and not walk.is_next(i, normalised(row)):
            return False
    return len(keeps) == walk.n + 1


ANSWERS: dict[str, Callable[[Vector], bool]] = {
    "chain": chain_answer,
    "block": block_answer,
    "k-Seq": k_seq_answer,
    "recursive rejection": recursive_answer,
    "walk and keep": walk_answer,
}


@pytest.mark.parametrize("rule", ANSWERS)
def test_every_answer_follows_from_first_principles(rule: str) -> None:
    """Bug: a wrong answer in the file, which would teach every engine the same mistake."""
    wrong = [vector["id"] for vector in of_rule(rule) if not ANSWERS[rule](vector)]
    assert wrong == []


def changed(expected: Vector) -> Iterator[Vector]:
    """Yield copies of an answer with another number, probability, or row."""
    for name, value in expected.items():
        if isinstance(value, int):
            yield {**expected, name: value + 1}
        elif name != "next":
            yield {**expected, name: [[1, 7], *value[1:]]}
        elif value and isinstance(value[0], int) and len({*value}) > 1:
            yield {**expected, name: [*value[1:], value[0]]}
        elif value and isinstance(value[0], list) and len({*value[0]}) > 1:
            yield {**expected, name: [[*value[0][1:], value[0][0]], *value[1:]]}


@pytest.mark.parametrize("rule", ANSWERS)
def test_every_changed_answer_is_noticed(rule: str) -> None:
    """Bug: a recomputation that accepts any answer."""
    vectors = [(vector, x) for vector in of_rule(rule)[::5] for x in changed(vector["expected"])]
    assert [x for vector, x in vectors if ANSWERS[rule]({**vector, "expected": x})] == []
    assert len(vectors) > 100


def distribution(chain: Chain, tests: Sequence[Fraction]) -> dict[int, Fraction]:
    """Probability of each number of accepted drafts, from the tests of the prefixes."""
    left, probs = Fraction(1), {}
    for i in range(chain.n, -1, -1):
        probs[i] = left * tests[i]
        left -= probs[i]
    assert not left
    return probs


def test_the_tests_of_blocks_make_whole_outputs_lossless() -> None:
    """Bug: formulas of this file that describe another rule, with another output."""
    tried = 0
    for vector in of_rule("block"):
        target, draft = exact(vector["target"]), exact(vector["draft"])
        size, n = len(target[0]), len(draft)
        if not 1 <= n <= 3 or size > 3:
            continue
        # Here the rows of a position are the same after all drafts.
        output: dict[tuple[int, ...], Fraction] = {}
        for drafts in itertools.product(range(size), repeat=n):
            drawn = math.prod((d[x] for d, x in zip(draft, drafts, strict=True)), start=Fraction(1))
            if not drawn:
                continue
            chain = Chain(target, draft, drafts)
            tests = [
                test if (test := chain.test(i)) is not None else Fraction(1) for i in range(n + 1)
            ]
            for i, probability in distribution(chain, tests).items():
                exactly = chain.at_least(i) - sum(chain.more(i))
                for z in range(size) if probability else ():
                    weight = chain.at_least(i) * target[i][z] - chain.more(i)[z]
                    text = (*drafts[:i], z)
                    output[text] = (
                        output.get(text, Fraction(0)) + drawn * probability * weight / exactly
                    )
        continued: dict[tuple[int, ...], Fraction] = {}
        for text, probability in output.items():
            for rest in itertools.product(range(size), repeat=n + 1 - len(text)):
                follows = (target[len(text) + i][z] for i, z in enumerate(rest))
                whole = (*text, *rest)
                more = probability * math.prod(follows, start=Fraction(1))
                continued[whole] = continued.get(whole, Fraction(0)) + more
        for whole in itertools.product(range(size), repeat=n + 1):
            wanted = math.prod((target[i][z] for i, z in enumerate(whole)), start=Fraction(1))
            assert continued.get(whole, Fraction(0)) == wanted, vector["id"]
        tried += 1
    assert tried > 100
