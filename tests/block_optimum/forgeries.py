"""Forged certificates of blocks, and an oracle that reads what a certificate claims.

The oracle lists every antichain and computes in fractions, or in 1,200 decimal digits where k is
large.  It shares nothing with the checker: no hull, no fixed point, no common units.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from contextlib import suppress
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from otm import solve_block
from otm.certificate import digest
from tests.block_optimum.oracles import antichains, random_law

F = Fraction
Document = dict[str, Any]
Rng = np.random.Generator
DIGITS = Context(prec=1200, Emin=-(10**9), Emax=10**9)


def real_certificates() -> list[Document]:
    """Certificates of all kinds, on trees whose antichains can be listed."""
    found = []
    for seed, k in enumerate([1, 2, 3, 7, 2, 4]):
        draft, target = (random_law(2, 2, np.random.default_rng([seed, i]), 0.1) for i in range(2))
        found.append(solve_block(draft, target, k, 2))
        for many in (k, 2**30):
            floats = [lambda path, law=law: [float(x) for x in law(path)]
                      for law in (draft, target)]  # fmt: skip
            found.append(solve_block(floats[0], floats[1], many, 2))
    rare = {0: [1e-200, 0.3], 1: [5e-324, 0.6], 2: [1e-160, 1e-320]}
    for p, q in rare.values():
        laws = [lambda path, x=x: [x, 1 - x] for x in (p, q)]
        found += [solve_block(laws[0], laws[1], k, 2) for k in (2, 2**20)]
    draft, target = (random_law(3, 2, np.random.default_rng([9, i]), 0) for i in range(2))
    found.append(solve_block(draft, target, 2, 2, top=1))
    for half in (F(1, 2), 0.5):
        table = {((0, 0), (1,)): half, ((0, 1),): half}
        found.append(solve_block(table, lambda path, half=half: [half / 2, 1 - half / 2]))
    return [solution.certificate.document for solution in found]


def value(written: Any) -> Fraction:
    """Read a number as it stands in a certificate."""
    if isinstance(written, int):
        return F(written)
    if "/" in written:
        return F(*(int(part, 0) for part in written.split("/")))
    return F(float.fromhex(written))


def claims(document: Document) -> tuple[Fraction, Fraction]:
    """Compute what S and the multipliers of a document prove, if they are feasible."""
    upper, nodes = F(0), document["nodes"]
    left = [F(0), *(F(node[4] or 1) for node in nodes)]
    for antichain, price in document["multipliers"]:
        upper += value(price) * as_fraction(hit(document, antichain))
        for y in antichain:
            left[y] -= value(price)
    for y in range(len(nodes), 0, -1):
        left[nodes[y - 1][0]] += max(left[y], F(0)) * value(nodes[y - 1][3])
    return sum(map(value, document["accepted"]), F(0)), upper + left[0]


def hit(document: Document, antichain: Any) -> Fraction | Decimal:
    """g(U) of a document; in decimal digits where k is large."""
    if document["trees"] is not None:
        drafted = (value(c) for nodes, c in document["trees"] if set(nodes) & set(antichain))
        return sum(drafted, F(0))
    reach, k = F(0), document["k"]
    for end in antichain:
        chance, y = F(1), end
        while y:
            parent, _, draft, *_ = document["nodes"][y - 1]
            if not 0 <= parent < y:
                raise ValueError("a parent must come before its node")
            chance *= value(draft)
            y = parent
        reach += chance
    if k <= 100:
        return 1 - (1 - reach) ** k
    missed = DIGITS.divide(Decimal((1 - reach).numerator), Decimal((1 - reach).denominator))
    return DIGITS.subtract(Decimal(1), DIGITS.power(missed, k))


def as_fraction(number: Fraction | Decimal) -> Fraction:
    return F(*number.as_integer_ratio())


def holds(document: Document) -> bool:
    """Whether S is feasible, the multipliers are, and both prove what the document claims."""
    nodes = document["nodes"]
    paths: list[tuple[int, ...]] = [()]
    for parent, token, *_ in nodes:
        paths.append((*paths[parent], token))
    place = {path: y for y, path in enumerate(paths)}
    if len(place) < len(paths):
        return False
    accept_probs = [F(1), *map(value, document["accepted"])]
    for column in (2, 3):
        for parent in range(len(paths)):
            row = [value(node[column]) for node in nodes
                   if node[0] == parent and node[column] is not None]  # fmt: skip
            if sum(row) > 1 or any(x < 0 for x in row):
                return False
    for y, (parent, _, _, share, levels) in enumerate(nodes, 1):
        if not 0 <= accept_probs[y] <= accept_probs[parent] * value(share) * (levels == 0):
            return False
    slack = 0 if document["trees"] is not None or document["k"] <= 100 else F(1, 10**1100)
    every = [[place[path] for path in chosen] for chosen in antichains(paths[1:])]
    if any(sum(accept_probs[y] for y in U) > as_fraction(hit(document, U)) + slack for U in every):
        return False
    allowed = {frozenset(U) for U in every} | {frozenset()}
    for antichain, price in document["multipliers"]:
        if value(price) < 0 or frozenset(antichain) not in allowed:
            return False
    lower, upper = claims(document)
    low, high = map(value, document["interval"])
    low_claim, high_claim = value(document["lower"]), value(document["upper"])
    return low <= low_claim <= lower and upper - slack <= high_claim <= high


Change = Callable[[Document, Rng], None]


def some_number(written: Any, rng: Rng) -> Any:
    """Change a number by next to nothing, or into something else."""
    exact = value(written) if isinstance(written, (int, str)) else F(1)
    tiny = F(1, 10 ** int(rng.integers(1, 400)))
    return rng.choice(np.array([
        ratio(exact * (1 + tiny)), ratio(exact * (1 - tiny)), ratio(exact + tiny),
        math.nextafter(float(exact), 2).hex(), math.nextafter(float(exact), -1).hex(),
        ratio(-exact), "-0x0.0p+0", "0/1", "1/1", "1/0", "nan", "inf", "NaN/1", "0x1p+99999",
        "1e400/1", "٣/٤", "1_0/2_0", " 1/2", "1/2/3", "0x1.00000000000001p-1", "1" * 5000 + "/1",
        "0x" + "f" * 4000 + "/1", True, False, None, 0.5, 10**4000, [], {}, "x" * 10_000,
    ], dtype=object))  # fmt: skip


def ratio(number: Fraction) -> str:
    """Write a fraction."""
    return "/".join(map(hex, number.as_integer_ratio()))


def places(part: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a document."""
    found = [path] if path else []
    if isinstance(part, (dict, list)):
        for key, child in part.items() if isinstance(part, dict) else enumerate(part):
            found += places(child, (*path, key))
    return found


def any_place(document: Document, rng: Rng) -> None:
    fields = [x for x in places(document) if x[0] not in ("versions", "method", "sha256")]
    *path, last = fields[int(rng.integers(len(fields)))]
    part: Any = document
    for key in path:
        part = part[key]
    try:
        part[last] = some_number(part[last], rng)
    except (ValueError, ZeroDivisionError, OverflowError):
        part[last] = some_number(0, rng)


def one_s(document: Document, rng: Rng) -> None:
    """Accept more of one node, and take over what follows: a larger lower end."""
    accepted = document["accepted"]
    y = int(rng.integers(len(accepted)))
    share = F(int(rng.integers(900, 1200)), 1000) if rng.random() < 0.5 else 1 + F(1, 10**30)
    accepted[y] = ratio(value(accepted[y]) * share)


def all_s(document: Document, rng: Rng) -> None:
    """Accept as much as the target allows at each node, or a little more than before."""
    accept_probs = [F(1)]
    for y, (parent, _, _, target, _) in enumerate(document["nodes"]):
        edge = accept_probs[parent] * value(target)
        share = F(int(rng.integers(0, 9)), 8)
        accept_probs.append(min(edge, max(value(document["accepted"][y]), share * edge)))
    document["accepted"] = [ratio(x) for x in accept_probs[1:]]


def one_price(document: Document, rng: Rng) -> None:
    """Lower, raise, drop or move a multiplier."""
    prices = document["multipliers"]
    if not prices:
        return
    i = int(rng.integers(len(prices)))
    size = len(document["nodes"])
    kind = rng.integers(4)
    if kind == 0:
        prices.pop(i)
    elif kind == 1:
        nodes = {int(x) for x in rng.integers(1, size + 1, rng.integers(1, 4))}
        nodes |= {document["nodes"][y - 1][0] or y for y in nodes}  # and those above them
        prices[i][0] = sorted(nodes)
    elif kind == 2:
        prices[i][0] = [*prices[i][0], int(rng.integers(0, size + 1))]
    else:
        prices[i][1] = ratio(value(prices[i][1]) * F(int(rng.integers(-10, 2000)), 1000))


def structure(document: Document, rng: Rng) -> None:
    """Swap, permute, or repeat nodes, columns and fields."""
    nodes, kind = document["nodes"], rng.integers(8)
    i, j = (int(x) for x in rng.integers(len(nodes), size=2))
    if kind == 0:
        for node in nodes:
            node[2], node[3] = node[3], node[2]
    elif kind == 1:
        nodes[i], nodes[j] = nodes[j], nodes[i]
    elif kind == 2:
        nodes[i][:2] = nodes[j][:2]
    elif kind == 3:
        nodes[i][0] = int(rng.integers(-1, len(nodes)))
    elif kind == 4:
        nodes[i][4] = int(rng.integers(0, 3))
    elif kind == 5:
        document["k"] = [1, 2, 3, 2**40, 2**63, 0, -1, True, 2.0, "2", None, 10**400][
            rng.integers(12)
        ]
    elif kind == 6:
        nodes.append(copy.deepcopy(nodes[i]))
        document["accepted"].append("0/1")
    else:
        field = list(document)[int(rng.integers(len(document)))]
        document[field] = copy.deepcopy(list(document.values())[int(rng.integers(len(document)))])


CHANGES: list[Change] = [any_place, any_place, one_s, all_s, one_price, structure]


def claim_again(document: Document, rng: Rng) -> None:
    """Claim what S and the multipliers would prove, or next to nothing more."""
    lower, upper = claims(document)
    step = F(1, 10 ** int(rng.integers(3, 300)))
    lower += step * (rng.random() < 0.25)
    upper -= step * (rng.random() < 0.25)
    if upper < lower and rng.random() < 0.5:
        upper = lower
    document |= {"lower": ratio(lower), "upper": ratio(upper), "gap": ratio(upper - lower)}
    document["interval"] = [(-9.0).hex(), (99.0).hex()]
    document["status"] = "bounded" if upper - lower else "exact"


def forged(documents: list[Document], seed: int) -> str:
    """Text of a forged certificate, with the digest that belongs to it."""
    rng = np.random.default_rng([seed, 42])
    document = copy.deepcopy(documents[int(rng.integers(len(documents)))])
    # what an earlier change left cannot always be changed again, claim anything, or be digested
    for _ in range(int(rng.integers(1, 3))):
        with suppress(TypeError, ValueError, LookupError, ArithmeticError, AttributeError):
            CHANGES[int(rng.integers(len(CHANGES)))](document, rng)
    if rng.random() < 0.7:
        with suppress(Exception):
            claim_again(document, rng)
    with suppress(Exception):
        document["sha256"] = digest(document)
    text = json.dumps(document)
    kind = rng.random()
    if kind < 0.02:
        text = text.replace('"k": ', '"k": 1, "k": ', 1)
    elif kind < 0.04:
        text = text.replace('"k": ', '"k": NaN, "x": ', 1)
    elif kind < 0.06:
        text = text[: int(rng.integers(len(text)))]
    elif kind < 0.07:
        text = text.replace('"k": ', '"k": 1e999, "x": ', 1)
    return text
