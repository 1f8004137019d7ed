"""Certificates of blocks: a valid one is accepted, and a changed one is rejected."""

from __future__ import annotations

import copy
import itertools
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otm.block_optimum.certificate as checker
from otm import BlockCertificate, solve_block
from otm.block_optimum.certificate import check
from otm.block_optimum.hull import hull
from otm.certificate import CertificateRefusedError, Work, digest
from otm.errors import CertificateError
from tests.block_optimum.oracles import antichains, random_law

F = Fraction
Document = dict[str, Any]


def exact() -> Document:
    draft, target = (lambda path: [F(2, 3), F(1, 3)]), (lambda path: [F(1, 3), F(2, 3)])
    return solve_block(draft, target, 2, 3).certificate.document


def floats() -> Document:
    rows = {p: np.random.default_rng(len(p)).dirichlet(np.ones(3), 2) for d in range(2)
            for p in itertools.product(range(3), repeat=d)}  # fmt: skip
    return solve_block(lambda p: rows[p][0], lambda p: rows[p][1], 2, 2).certificate.document


def table() -> Document:
    half = F(1, 2)
    drafts = {((0, 0), (1,)): half, ((0, 1),): half}
    return solve_block(drafts, lambda path: [F(1, 3), F(2, 3)]).certificate.document


def signed(document: Document) -> Document:
    """With the digest that belongs to it: what is wrong must be seen in the numbers."""
    return document | {"sha256": digest(document)}


def with_lower(document: Document, lower: Fraction) -> Document:
    """Claim another lower end, with all that follows from it."""
    gap = F(*map(int, document["upper"].split("/"))) - lower
    text = "/".join(map(str, lower.as_integer_ratio()))
    return document | {
        "lower": text,
        "gap": "/".join(map(str, gap.as_integer_ratio())),
        "interval": [(-1.0).hex(), (99.0).hex()],
        "status": "bounded" if gap else "exact",
    }


@pytest.mark.parametrize("make", [exact, floats, table])
def test_what_holds_is_proved(make: Callable[[], Document], tmp_path: Path) -> None:
    document = make()
    check(document)
    BlockCertificate(document).save(tmp_path / "proof.json")
    found = BlockCertificate.load(tmp_path / "proof.json")
    assert (found.lower, found.upper, found.gap) == (
        BlockCertificate(document).lower,
        BlockCertificate(document).upper,
        BlockCertificate(document).gap,
    )


def change(*keys: Any, to: Any) -> Callable[[Document], Document]:
    """Change one entry."""

    def apply(document: Document) -> Document:
        changed = copy.deepcopy(document)
        place: Any = changed
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = to
        return changed

    return apply


CHANGES = {
    "an S above S(y) T(z|y)": change("accepted", 0, to="1/2"),
    "a negative S": change("accepted", 13, to="-1/9"),
    "a smaller S": change("accepted", 0, to="0/1"),
    "a smaller multiplier": change("multipliers", 0, 1, to="0/1"),
    "a negative multiplier": change("multipliers", 0, 1, to="-1/1"),
    "an antichain with a node above another": change("multipliers", 0, 0, to=[1, 3]),
    "an antichain with the root": change("multipliers", 0, 0, to=[0]),
    "an antichain with a node twice": change("multipliers", 0, 0, to=[5, 5]),
    "another antichain": change("multipliers", 0, 0, to=[1, 2]),
    "a larger lower end": lambda document: with_lower(document, F(1622, 729)),
    "more drafts": change("k", to=3),
    "fewer drafts": change("k", to=1),
    "a draft probability": change("nodes", 0, 2, to="1/2"),
    "a target probability": change("nodes", 0, 3, to="1/9"),
    "draft probabilities above 1": change("nodes", 0, 2, to="1/1"),
    "target probabilities above 1": change("nodes", 0, 3, to="1/1"),
    "levels below a node": change("nodes", 0, 4, to=1),
    "a node before its parent": change("nodes", 0, 0, to=1),
    "the same path twice": change("nodes", 1, 1, to=0),
    "a missing S": lambda document: document | {"accepted": document["accepted"][1:]},
    "no multipliers": change("multipliers", to=[]),
    "no number": change("accepted", 0, to=None),
    "not a finite number": change("accepted", 0, to="inf"),
    "a float instead of a text": change("accepted", 0, to=0.5),
    "a narrow interval": change("interval", to=[(2.5).hex(), (2.6).hex()]),
    "a gap that is none": change("gap", to="1/9"),
    "a status": change("status", to="bounded"),
    "another schema": change("schema", to="otm-certificate-1"),
    "another field": lambda document: document | {"more": 1},
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_is_refused(name: str) -> None:
    document = exact()
    assert F(*map(int, document["lower"].split("/"))) == F(1621, 729)
    with pytest.raises(CertificateRefusedError):
        check(signed(CHANGES[name](document)))


def test_an_s_that_asks_too_much_of_an_antichain_is_refused() -> None:
    """Bug: the checker tests too few corners of the hull."""
    document = exact()
    nodes = document["nodes"]
    paths: list[tuple[int, ...]] = [()]
    for parent, token, *_ in nodes:
        paths.append((*paths[parent], token))
    place = {path: y for y, path in enumerate(paths)}
    reach = {path: F(2, 3) ** path.count(0) * F(1, 3) ** path.count(1) for path in paths}
    limits = {
        chosen: 1 - (1 - sum(reach[path] for path in chosen)) ** 2
        for chosen in antichains(paths[1:])
    }
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        accept_probs = [F(1)]
        least = int(rng.integers(9))
        for path in paths[1:]:
            share = F(1 + path[-1], 3) * F(int(rng.integers(least, 9)), 8) * F(15, 16)
            accept_probs.append(accept_probs[place[path[:-1]]] * share)
        feasible = all(
            sum(accept_probs[place[path]] for path in chosen) <= limit
            for chosen, limit in limits.items()
        )
        texts = ["/".join(map(str, x.as_integer_ratio())) for x in accept_probs[1:]]
        changed = checker.CheckedTree(document | {"accepted": texts}, Work(0))
        if feasible:
            assert F(*changed.lower()) == sum(accept_probs[1:])
        else:
            refused += 1
            with pytest.raises(CertificateRefusedError, match="antichain"):
                changed.lower()
    assert 0 < refused < 60


def test_a_wrong_digest_is_refused() -> None:
    with pytest.raises(CertificateRefusedError, match="digest"):
        check(exact() | {"method": "guessing"})
    with pytest.raises(CertificateError, match="digest"):
        BlockCertificate(exact() | {"method": "guessing"}).check()


@pytest.mark.parametrize(
    "apply",
    [
        change("flow", 0, 1, to=4),
        change("flow", 0, 2, to="1/1"),
        change("flow", to=[]),
        change("trees", 0, 1, to="1/4"),
        change("trees", 0, 0, to=[3]),
        change("trees", 0, 1, to="3/4"),
        change("nodes", 0, 4, to=1),
    ],
)
def test_flows_that_were_changed_are_refused(apply: Callable[[Document], Document]) -> None:
    """Bug: drafts that send mass which they do not have, or to where they do not go."""
    with pytest.raises(CertificateRefusedError):
        check(signed(apply(table())))


def test_rests_accept_nothing() -> None:
    """Bug: a lower end that counts tokens which were left out."""
    draft, target = (random_law(4, 2, np.random.default_rng(i), 0) for i in range(2))
    document = solve_block(draft, target, 2, 2, top=2).certificate.document
    check(document)
    rest = next(y for y, node in enumerate(document["nodes"]) if node[4])
    with pytest.raises(CertificateRefusedError, match="remainder node"):
        check(signed(change("accepted", rest, to="1/1000000")(document)))
    with pytest.raises(
        CertificateRefusedError
    ):  # and an upper end at which they are worth one level
        check(signed(change("nodes", rest, 4, to=3)(document)))


@pytest.mark.parametrize("seed", range(20))
def test_the_hull_is_that_of_all_antichains(seed: int) -> None:
    """Bug: a corner that is lost, or a segment in the wrong order."""
    rng = np.random.default_rng(seed)
    draft, target = (random_law(2, 3, rng) for _ in range(2))
    paths = [path for d in range(4) for path in itertools.product(range(2), repeat=d)]
    reach, accept_probs = {(): F(1)}, {(): F(1)}
    for path in paths[1:]:
        reach[path] = reach[path[:-1]] * draft(path[:-1])[path[-1]]
        accept_probs[path] = (
            accept_probs[path[:-1]] * target(path[:-1])[path[-1]] * F(int(rng.integers(1, 5)), 4)
        )
    nodes = [path for path in paths if reach[path]]
    place = {path: i for i, path in enumerate(nodes)}
    segments, _ = hull(
        [-1, *(place[path[:-1]] for path in nodes[1:])],
        [reach[path] for path in nodes],
        [accept_probs[path] for path in nodes],
    )
    assert [s.slope for s in segments] == sorted((s.slope for s in segments), reverse=True)
    corners = list(itertools.accumulate((s.width for s in segments), initial=F(0)))
    heights = list(itertools.accumulate((s.height for s in segments), initial=F(0)))
    points = [
        (sum(reach[y] for y in chosen), sum(accept_probs[y] for y in chosen))
        for chosen in antichains(nodes[1:])
    ]
    assert set(zip(corners[1:], heights[1:], strict=True)) <= set(points)
    for x, y in points:
        j = next(j for j in range(1, len(corners)) if x <= corners[j])
        share = (x - corners[j - 1]) / (corners[j] - corners[j - 1])
        assert y <= heights[j - 1] + share * (heights[j] - heights[j - 1])


def run(path: Path) -> subprocess.CompletedProcess[str]:
    """Run the checker with no package installed."""
    command = [sys.executable, "-I", "-S", str(checker.__file__), str(path)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_the_checker_stands_alone(tmp_path: Path) -> None:
    """Bug: a checker that needs what it checks."""
    path = tmp_path / "proof.json"
    BlockCertificate(exact()).save(path)
    done = run(path)
    assert (done.returncode, done.stdout[:15]) == (0, "proved (exact):"), done.stderr
    path.write_text(path.read_text().replace('"k": 2', '"k": 3'))
    done = run(path)
    assert (done.returncode, done.stderr[:9]) == (1, "rejected:")
    with pytest.raises(CertificateError, match="digest"):
        BlockCertificate.load(path)
    path.write_text("[1]")
    assert "not a JSON object" in run(path).stderr
    path.write_text('{"k": 2, "k": 3}')
    assert "twice" in run(path).stderr
    with pytest.raises(CertificateError, match="twice"):
        BlockCertificate.load(path)
