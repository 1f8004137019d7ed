"""The stand-alone checker: it accepts valid certificates and rejects others in one line.

The oracles are brute force over all sets of tokens, in fractions; they share no code with OTM.
"""

from __future__ import annotations

import ast
import copy
import functools
import hashlib
import itertools
import json
import math
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otm
from otm import certificate

CHECKER = Path(certificate.__file__)
Document = dict[str, Any]


def parse(text: Any) -> Fraction:
    """Read a fraction as the checker does."""
    return Fraction(*certificate.ratio(text))


DRAFT, TARGET = [4, 3, 2, 1], [1, 2, 3, 4]  # in tenths; tight, and p, q and their order differ


def good_document(k: int = 2, exact: bool = True) -> Document:
    return copy.deepcopy(made_document(k, exact))


@cache
def made_document(k: int, exact: bool) -> Document:
    tenths = [[Fraction(x, 10) if exact else x / 10 for x in law] for law in (DRAFT, TARGET)]
    return otm.solve(*tenths, k).certificate.to_document()


def sealed(document: Document) -> Document:
    """Recompute the digests, so that they are not what gives a forgery away."""
    document = dict(document)
    inputs = {name: document.get(name) for name in ("draft", "target", "k", "draft_law")}
    if "inputs_sha256" in document:
        document["inputs_sha256"] = sha256(inputs)
    if "sha256" in document:
        document["sha256"] = sha256({k: v for k, v in document.items() if k != "sha256"})
    return document


def sha256(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def verdict(content: str | bytes | Document, folder: Path) -> int:
    """Exit status of the checker on a file; an exception of it would end the test."""
    file = folder / "certificate.json"
    if isinstance(content, dict):
        content = json.dumps(content)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return certificate.main([str(file)])


def refused(content: str | bytes | Document, folder: Path, capsys: Any) -> str:
    """Assert a refusal in one line on stderr alone, and return the line."""
    capsys.readouterr()
    assert verdict(content, folder) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rejected: ")
    assert err.endswith("\n")
    assert len(err.splitlines()) == 1
    return str(err)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the file as a user without OTM does: isolated, without site packages."""
    command = [sys.executable, "-I", "-S", str(CHECKER), *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd="/")


def test_it_imports_the_standard_library_alone() -> None:
    """Catches a checker that trusts what it checks, or that needs something installed."""
    tree = ast.parse(CHECKER.read_text(encoding="utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module).partition(".")[0])
    assert imported <= set(sys.stdlib_module_names)
    assert {"importlib", "subprocess", "pickle"}.isdisjoint(imported)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6, 7, 8])
def test_a_good_file_is_proved(tmp_path: Path, k: int, exact: bool) -> None:
    certificate_of = otm.solve(
        *[[Fraction(x, 10) if exact else x / 10 for x in law] for law in (DRAFT, TARGET)], k
    ).certificate
    certificate_of.save(tmp_path / "good.json")
    done = run(tmp_path / "good.json")
    assert (done.returncode, done.stderr) == (0, "")
    words = done.stdout.split()
    assert words[:2] == ["proved", "(exact):" if exact else "(bounded):"]
    alpha = brute_force_alpha(DRAFT, TARGET, k)
    assert Fraction(float(words[2])) <= alpha <= Fraction(float(words[-1]))


# A forgery: what is changed, and to what.  All are re-sealed, so that no digest helps.
def edit(field: str, change: Callable[[Any], Any]) -> Callable[[Document], None]:
    def apply(document: Document) -> None:
        document[field] = change(document[field])

    return apply


def claim(field: str, by: Fraction) -> Callable[[Document], None]:
    """Move one end of the interval, keeping gap, status and interval in line with it."""

    def apply(document: Document) -> None:
        ends = {name: parse(document[name]) for name in ("lower", "upper")}
        ends[field] += by
        gap = ends["upper"] - ends["lower"]
        document[field], document["gap"] = str_of(ends[field]), str_of(gap)
        document["status"] = "bounded"
        document["interval"] = [(0.0).hex(), (1.0).hex()]

    return apply


def str_of(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


def scaled(factor: Fraction) -> Callable[[Any], str]:
    return lambda text: str_of(parse(text) * factor)


def plan_edit(change: Callable[[Document], None]) -> Callable[[Document], None]:
    return lambda document: change(document["plan"])


def entry(index: int, drafts: Any = None, token: Any = None, mass: Any = None) -> Any:
    def change(plan: Document) -> None:
        for position, value in enumerate((drafts, token, mass)):
            if value is not None:
                plan["entries"][index][position] = value

    return plan_edit(change)


def move_mass(plan: Document) -> None:
    """Change the output of one draft pair: p^k stays right, the output distribution does not."""
    plan["entries"][0][1] = (plan["entries"][0][1] + 1) % 4


def output_the_other_draft(plan: Document) -> None:
    """Output another draft: p^k and the acceptance still hold, the output distribution does not."""
    chosen = next(e for e in plan["entries"] if e[1] == e[0][0] != e[0][1])
    chosen[1] = chosen[0][1]


def repeat_a_draft(plan: Document) -> None:
    """Repeat an output draft: output distribution and acceptance stay right, p^k does not."""
    chosen = next(e for e in plan["entries"] if e[1] == e[0][0] != e[0][1])
    chosen[0] = [chosen[1], chosen[1]]


def swap_outputs(plan: Document) -> None:
    """Exchange mass between two outputs and two draft pairs: both marginals still hold."""
    entries = plan["entries"]
    first = next(e for e in entries if e[1] in e[0])
    second = next(
        e for e in entries if e[1] in e[0] and e[1] not in first[0] and first[1] not in e[0]
    )
    moved = min(first[2], second[2])
    first[2] -= moved
    second[2] -= moved
    entries += [[first[0], second[1], moved], [second[0], first[1], moved]]


def borrow_mass(plan: Document) -> None:
    """Take mass from outputs that have none: both marginals hold, and more would be accepted."""
    plan["entries"] += [[[0, 0], 0, 1], [[0, 0], 1, -1], [[1, 1], 1, 1], [[1, 1], 0, -1]]


def independent(plan: Document) -> None:
    """Replace the plan by the independent coupling: a valid plan, of low acceptance."""
    plan["denominator"] = 1000
    plan["entries"] = [
        [[i, j], y, DRAFT[i] * DRAFT[j] * TARGET[y]]
        for i in range(4)
        for j in range(4)
        for y in range(4)
    ]


TINY = Fraction(1, 10**40)
NANO = Fraction(1, 10**9)
FORGERIES: dict[str, Callable[[Document], None]] = {
    "schema of another version": edit("schema", lambda _: "otm-certificate-2"),
    "draft distribution without bounds": edit("draft_law", lambda _: "without-replacement"),
    "unknown method": edit("method", lambda _: "magic"),
    "versions that are numbers": edit("versions", lambda _: {"python": 3}),
    "versions with one number": edit("versions", lambda _: {"python": "3", "numpy": 2}),
    "fewer drafts than claimed for": edit("k", lambda k: k - 1),
    "more drafts than the cut allows": edit("k", lambda k: k + 1),
    "k = 0": edit("k", lambda _: 0),
    "k negative": edit("k", lambda _: -2),
    "k boolean": edit("k", lambda _: True),
    "k too large to check": edit("k", lambda _: 10**9),
    "k of four thousand digits": edit("k", lambda _: 10**4000),
    "swapped distributions": lambda d: d.update(draft=d["target"], target=d["draft"]),
    "draft probabilities permuted": edit("draft", lambda law: law[::-1]),
    "target probability raised": edit("target", lambda law: [law[0] + 1, *law[1:]]),
    "draft shorter than target": edit("draft", lambda law: law[:-1]),
    "draft negative": edit("draft", lambda law: [-1, *law[1:]]),
    "draft zero everywhere": edit("draft", lambda law: [0] * len(law)),
    "draft of malformed hexadecimal digits": edit("draft", lambda law: ["0xzz", *law[1:]]),
    "draft of booleans": edit("draft", lambda law: [True] * len(law)),
    "draft of floats that JSON rounds": edit("draft", lambda law: [0.25] * len(law)),
    "draft that is NaN": edit("draft", lambda law: ["nan"] * len(law)),
    "draft that is infinite": edit("draft", lambda law: ["inf", *["0x0.0p+0"] * (len(law) - 1)]),
    "draft float beyond all floats": edit("draft", lambda law: ["0x1p+5000"] * len(law)),
    "draft half integers, half floats": edit("draft", lambda law: ["0x1.0p+2", *law[1:]]),
    "cut without a token": edit("cut", lambda cut: cut[1:]),
    "cut with a token too many": edit("cut", lambda cut: [*cut, 3]),
    "cut with a token twice": edit("cut", lambda cut: [*cut, cut[0]]),
    "cut with a token twice, once as a boolean": edit("cut", lambda cut: [*cut, False]),
    "cut with a token of the next vocabulary": edit("cut", lambda cut: [*cut, 4]),
    "cut with a negative token": edit("cut", lambda cut: [-4, *cut[1:]]),
    "cut with a float token": edit("cut", lambda cut: [float(cut[0]), *cut[1:]]),
    "cap too large by a part in 1e9": edit("cap", scaled(1 + NANO)),
    "cap too large by a part in 1e40": edit("cap", scaled(1 + TINY)),
    "cap too small by a part in 1e9": edit("cap", scaled(1 - NANO)),
    "cap negative": edit("cap", scaled(Fraction(-1))),
    "cap and lower end negative": lambda d: d.update(
        cap="-1/1", lower="-1/1", gap="179/100", status="bounded", interval=["-0x1p+0", "0x1p+0"]
    ),
    "cap over zero": edit("cap", lambda _: "1/0"),
    "cap as a decimal": edit("cap", lambda _: "1.5"),
    "cap with three parts": edit("cap", lambda _: "1/2/3"),
    "cap not finite": edit("cap", lambda _: "inf/1"),
    "lower too high by 1e-9": claim("lower", NANO),
    "lower too high by 1e-40": claim("lower", TINY),
    "upper too low by 1e-9": claim("upper", -NANO),
    "upper too low by 1e-40": claim("upper", -TINY),
    "gap that is not the difference": edit("gap", lambda _: "1/1000"),
    "gap negative": lambda d: d.update(lower=d["upper"], upper="0/1", gap="-1/1"),
    "interval inside the proof": edit("interval", lambda _: [(0.5).hex(), (0.5).hex()]),
    "interval that begins above lower": edit(
        "interval", lambda ends: [math.nextafter(float.fromhex(ends[1]), 2).hex(), (2.0).hex()]
    ),
    "interval that ends below upper": edit(
        "interval", lambda ends: [(0.0).hex(), math.nextafter(float.fromhex(ends[0]), 0).hex()]
    ),
    "interval of one end": edit("interval", lambda ends: ends[:1]),
    "interval that is NaN": edit("interval", lambda ends: ["nan", ends[1]]),
    "interval that is infinite": edit("interval", lambda ends: [ends[0], "inf"]),
    "status too modest": edit("status", lambda _: "bounded"),
    "plan with mass moved to another output": plan_edit(move_mass),
    "plan with the other draft as output": plan_edit(output_the_other_draft),
    "plan with a draft repeated": plan_edit(repeat_a_draft),
    "plan with mass exchanged between outputs": plan_edit(swap_outputs),
    "plan with mass borrowed": plan_edit(borrow_mass),
    "plan of an independent output": plan_edit(independent),
    "plan with an entry missing": plan_edit(lambda plan: plan["entries"].pop()),
    "plan with an entry twice": plan_edit(lambda plan: plan["entries"].append(plan["entries"][0])),
    "plan without entries": plan_edit(lambda plan: plan["entries"].clear()),
    "plan whose entries are not a list": plan_edit(lambda plan: plan.update(entries=None)),
    "plan whose entries are an object": plan_edit(lambda plan: plan.update(entries={})),
    "plan of half the mass": plan_edit(lambda d: d.update(denominator=2 * d["denominator"])),
    "plan with denominator 0": plan_edit(lambda plan: plan.update(denominator=0)),
    "plan with negative denominator": plan_edit(lambda plan: plan.update(denominator=-1)),
    "plan with another field": plan_edit(lambda plan: plan.update(note="trust me")),
    "plan entry with a draft too many": entry(0, drafts=[0, 0, 0]),
    "plan entry with a draft out of range": entry(0, drafts=[0, 4]),
    "plan entry with boolean drafts": entry(0, drafts=[False, False]),
    "plan entry with float drafts": entry(0, drafts=[0.0, 0.0]),
    "plan entry with lists as drafts": entry(0, drafts=[[0], [0]]),
    "plan entry with objects as drafts": entry(0, drafts=[{}, 0]),
    "plan entry with an output out of range": entry(0, token=4),
    "plan entry with a boolean output": entry(0, token=True),
    "plan entry with a negative mass": entry(0, mass=-1),
    "plan entry with a float mass": entry(0, mass=1.0),
    "plan entry of two": plan_edit(lambda plan: plan["entries"][0].pop()),
}  # fmt: skip


def plan_of_nothing(n: int, k: int, denominator: Any) -> Document:
    entries = [[list(drafts), 0, 0] for drafts in itertools.product(range(n), repeat=k)]
    return {"denominator": denominator, "entries": entries}


def long_number(bits: int) -> str:
    return hex(3 ** round(bits / math.log2(3)))


LONG = long_number(1_200_000)
MANY = [1] * 150_000
DEMANDING: dict[str, Document] = {  # hours of work, but for the limit, in files below 1 MB
    "a cap of many digits for many tokens": {
        "draft": MANY, "target": MANY, "cap": f"{long_number(900_000)}/{long_number(600_000)}",
    },
    "one long weight among many": {"draft": [LONG, *MANY], "target": [1, *MANY]},
    "one long target weight among many": {"draft": [1, *MANY], "target": [LONG, *MANY]},
    "a power of millions of bits at every token": {
        "draft": [2] * 300, "target": [2] * 300, "k": 3**12, "cap": "1000000/1",
        "upper": "1/2", "gap": "1/2",
    },
    "a power of millions of digits for the cut": {
        "draft": [101, 100], "target": [33, 77], "k": 3**13, "cut": [0], "upper": "1/2",
        "gap": "1/2",
    },
    "long weights to a large power": {
        "draft": [long_number(20_000)] * 50, "target": [long_number(20_001)] * 50, "k": 1500,
        "cut": [0], "upper": "1/2", "gap": "1/2",
    },
    "a plan of powers of long weights": {
        "draft": [LONG, 1], "k": 12, "plan": plan_of_nothing(2, 12, long_number(400_000)),
    },
    "a plan with a long denominator and long sums": {
        "draft": [LONG, *MANY[:4095]], "target": MANY[:4096], "k": 1,
        "plan": plan_of_nothing(4096, 1, LONG),
    },
    "a plan of many entries with a long denominator": {
        "k": 12, "plan": {"denominator": LONG, "entries": [[[0] * 12, 0, 1]] * 15_000},
    },
}  # fmt: skip


@pytest.mark.parametrize("demand", DEMANDING)
def test_work_out_of_proportion_to_the_file_is_refused(
    demand: str, tmp_path: Path, capsys: Any
) -> None:
    """Bug: a file of a megabyte that keeps its reader busy for hours."""
    nothing = {
        "draft": [1, 1], "target": [1, 1], "k": 2, "cut": [], "cap": "0/1", "plan": None,
        "lower": "0/1", "upper": "1/1", "gap": "1/1", "interval": ["0x0p+0", "0x1p+0"],
        "status": "bounded",
    }  # fmt: skip
    document = good_document() | nothing
    assert verdict(sealed(document), tmp_path) == 0
    document = sealed(document | DEMANDING[demand])
    assert len(json.dumps(document, separators=(",", ":"))) < 2**20
    line = refused(document, tmp_path, capsys)
    assert "the numbers are too long, or k is too large, for this file size" in line


def test_the_limit_of_the_work_grows_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a limit for all files, which large vocabularies exceed."""
    rng = np.random.default_rng(1)
    usual, awkward = (np.exp(rng.normal(scale=3, size=(2, 20_000))) for _ in range(2))
    awkward[:, ::1000] = 5e-324  # which makes all others integers of a thousand bits
    for weights, k in ((usual, 2), (awkward, 64), (usual, 100_000)):
        draft, target = weights / weights.sum(axis=1, keepdims=True)
        document = otm.solve(draft, target, k).certificate.to_document()
        monkeypatch.setattr(certificate, "BASE_WORK", 0)
        certificate.check(document)
        monkeypatch.setattr(certificate, "WORK_PER_CHARACTER", 10)
        with pytest.raises(certificate.CertificateRefusedError, match="too long"):
            certificate.check(document)
        monkeypatch.undo()


def test_certificates_of_large_vocabularies_are_within_the_limit() -> None:
    rng = np.random.default_rng(2)
    noise = rng.normal(scale=3, size=150_000)
    weights = np.exp([noise + rng.normal(size=noise.size), noise])
    weights[:, ::1000] = 5e-324
    draft, target = weights / weights.sum(axis=1, keepdims=True)
    certificate.check(otm.solve(draft, target, 100_000).certificate.to_document())


@pytest.mark.parametrize(("n", "k"), [(2, 300_000), (10, 4000), (300, 1000)])
def test_exact_certificates_of_half_a_million_bits_are_within_the_limit(n: int, k: int) -> None:
    """Bug: greatest common divisors of long numbers, which take longer than all the rest."""
    rng = random.Random(3)
    laws = [[1, *(rng.randrange(1, 10**6) for _ in range(n - 1))] for _ in range(2)]
    if n == 10:
        laws = [[x * 10**30 + rng.randrange(10**30) for x in law] for law in laws]
        laws[0][0] = 1
    proof = otm.solve(*[[Fraction(x, sum(law)) for x in law] for law in laws], k).certificate
    document = proof.to_document()
    assert document["status"] == "exact"
    certificate.check(document)


@given(
    part=st.integers(0, 2**70),
    rest=st.integers(0, 2**70) | st.integers(0, 3),
    k=st.integers(1, 200),
    bits=st.integers(1, 200),
)
def test_fixed_point_is_rounded_to_the_safe_side(part: int, rest: int, k: int, bits: int) -> None:
    """Bug: rounding in the favour of a claim, where the last bit decides."""
    total = part + rest or 1
    exact = (1 - (1 - Fraction(part, total)) ** k) * 2**bits
    low, high = (
        certificate.at_least_once(part, total, k, bits, up=up, work=certificate.Work(0))
        for up in (False, True)
    )
    assert low <= exact <= high
    assert high - low <= 2 * k + 2


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forgery_is_refused(forgery: str, tmp_path: Path, capsys: Any) -> None:
    """Catches a missing check, and a check that crashes where it should reject."""
    document = good_document()
    assert verdict(sealed(document), tmp_path) == 0
    FORGERIES[forgery](document)
    line = refused(sealed(document), tmp_path, capsys)
    assert "digest" not in line


@pytest.mark.parametrize("forgery", [name for name in FORGERIES if "floats" not in name])
def test_an_unsealed_forgery_is_refused_too(forgery: str, tmp_path: Path, capsys: Any) -> None:
    document = good_document()
    FORGERIES[forgery](document)
    line = refused(document, tmp_path, capsys)
    assert ("schema" if forgery.startswith("schema") else "digest") in line


JUNK = [None, True, 0, -1, 2.5, 10**4000, "", "x", "1/2", [], [[]], [None], {}, {"a": {}}]
LEGITIMATE = [("plan", None), ("versions", {})]


@pytest.mark.parametrize("field", sorted(certificate.FIELDS))
def test_every_field_is_needed_and_has_a_type(field: str, tmp_path: Path, capsys: Any) -> None:
    """Catches a field that is not looked at, and a crash on a value of another type."""
    for seal in (sealed, dict):
        document = good_document()
        del document[field]
        refused(seal(document), tmp_path, capsys)
        for junk in JUNK:
            document = good_document()
            if (field, junk) in LEGITIMATE or document[field] == junk:
                continue
            document[field] = junk
            if seal is sealed and field in ("sha256", "inputs_sha256"):
                document = {**sealed(document), field: junk}
            refused(seal(document) if field[-6:] != "sha256" else document, tmp_path, capsys)


def test_an_additional_field_is_refused(tmp_path: Path, capsys: Any) -> None:
    refused(sealed(good_document() | {"note": "trust me"}), tmp_path, capsys)


def bad_texts() -> Iterator[Any]:
    text = json.dumps(good_document())
    for length in (0, 1, 2, len(text) // 3, len(text) // 2, len(text) - 1):
        yield pytest.param(text[:length], id=f"cut off after {length}")
    yield pytest.param("certificate", id="not JSON")
    yield pytest.param("[]", id="a list")
    yield pytest.param("null", id="null")
    yield pytest.param('"schema"', id="a string")
    yield pytest.param(text + text, id="two documents")
    yield pytest.param("\ufeff" + text, id="byte order mark")
    yield pytest.param(text.encode("utf-16"), id="UTF-16")
    yield pytest.param(b"\xff" + text.encode(), id="not UTF-8")
    yield pytest.param(b"\x00" * 100, id="zeros")
    for word in ("NaN", "Infinity", "-Infinity"):
        yield pytest.param(text.replace('"k": 2', f'"k": {word}'), id=word)
    yield pytest.param(text.replace('"k": 2', '"k": 1e999'), id="a float beyond all floats")
    yield pytest.param(text.replace('"k": 2', '"k": 2, "k": 2'), id="a key twice")
    yield pytest.param(
        text.replace('"denominator"', '"entries": [], "denominator"'), id="an inner key twice"
    )
    yield pytest.param(text.replace('"k": 2', f'"k": {"9" * 5000}'), id="5,000 digits")
    yield pytest.param(text.replace('"k": 2', r'"k": "\ud800"'), id="half a surrogate pair")
    yield pytest.param("[" * 200_000 + "]" * 200_000, id="200,000 lists")


@pytest.mark.parametrize("text", list(bad_texts()))
def test_what_is_no_certificate_is_refused(text: Any, tmp_path: Path, capsys: Any) -> None:
    """Catches a traceback where a line is due."""
    refused(text, tmp_path, capsys)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_of_every_depth_is_refused(
    opening: str, closing: str, tmp_path: Path, capsys: Any
) -> None:
    """Catches a RecursionError at the one depth that can be read but not be hashed or shown."""
    text = json.dumps(good_document())
    for depth in (100, *range(800, 1_010), 5_000):
        nested = opening * depth + "1" + closing * depth
        refused(text.replace('"k": 2', f'"k": {nested}'), tmp_path, capsys)
        refused(text.replace('"interval": [', f'"interval": [{nested}, '), tmp_path, capsys)


def test_refusals_of_the_program(tmp_path: Path) -> None:
    """Exit status and streams as a shell sees them."""
    forged = good_document()
    FORGERIES["cap too large by a part in 1e9"](forged)
    contents = {
        "empty": "",
        "forged": json.dumps(sealed(forged)),
        "nested": "[" * 100_000,
        "wide": json.dumps(good_document()).replace('"k": 2', '"k": 1e999'),
    }
    files = [tmp_path / name for name in (*contents, "missing")]
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for file in (*files, tmp_path / "bytes", tmp_path):
        done = run(file)
        assert (done.returncode, done.stdout) == (1, ""), file
        assert len(done.stderr.splitlines()) == 1
        assert "Traceback" not in done.stderr
    assert run().returncode == run("a", "b").returncode == 2


def test_a_plan_for_too_large_an_instance_is_refused_at_once(tmp_path: Path, capsys: Any) -> None:
    """Catches n^k computed before it is compared with the limit: years, at this n and k."""
    document = good_document()
    n, k = 20_000, 2**24
    law = [1] + [0] * (n - 1)
    document |= {"draft": law, "target": law, "k": k, "cut": [], "cap": "1/1", "status": "exact"}
    document |= {"lower": "1/1", "upper": "1/1", "gap": "0/1", "interval": ["0x1p+0", "0x1p+0"]}
    assert "draft tuples" in refused(sealed(document), tmp_path, capsys)
    assert verdict(sealed(document | {"plan": None}), tmp_path) == 0


def test_the_size_of_a_plan_is_the_number_of_tuples() -> None:
    """Bug: n k in place of n^k."""
    document = good_document(k=7) | {"plan": good_document(k=2)["plan"]}
    with pytest.raises(certificate.CertificateRefusedError, match="draft tuples"):
        certificate.check(sealed(document))


# Soundness, against brute force ----------------------------------------------------------------


def subsets(n: int) -> Iterator[list[int]]:
    for mask in range(2**n):
        yield [x for x in range(n) if mask >> x & 1]


def brute_force_alpha(draft: list[int], target: list[int], k: int) -> Fraction:
    """Return the least q(H) + 1 − p(H)^k over all sets H."""
    of_draft, of_target = sum(draft) ** k, sum(target)
    least = min(  # in whole numbers; Σq · (Σp)^k stands for 1
        sum(target[x] for x in H) * of_draft - sum(draft[x] for x in H) ** k * of_target
        for H in subsets(len(draft))
    )
    return 1 + Fraction(least, of_target * of_draft)


def can_be_accepted(draft: list[int], target: list[int], k: int, cap: Fraction) -> bool:
    """Whether v = min(q, cap · p) satisfies v(A) ≤ 1 − (1 − p(A))^k for all sets A."""
    p = [Fraction(x, sum(draft)) for x in draft]
    q = [Fraction(x, sum(target)) for x in target]
    v = [min(q_x, cap * p_x) for p_x, q_x in zip(p, q, strict=True)]
    return all(sum(v[x] for x in A) <= 1 - (1 - sum(p[x] for x in A)) ** k for A in subsets(len(p)))


def accepted_mass(draft: list[int], target: list[int], k: int, cap: Fraction) -> Fraction:
    work = certificate.Work(0)
    mass, unit = certificate.accepted_mass(draft, target, k, cap.as_integer_ratio(), work=work)
    return Fraction(mass, unit)


def random_laws(rng: random.Random) -> tuple[list[int], list[int], int]:
    """Small distributions with zeros and ties, equal, disjoint and skewed ones among them."""
    n = rng.randint(1, 6)
    top = rng.choice([1, 2, 3, 10, 1000, 10**30])
    draft, target = ([rng.randint(0, top) for _ in range(n)] for _ in range(2))
    kind = rng.random()
    if kind < 0.1:
        target = draft[:]
    elif kind < 0.2:
        target = [x if not y else 0 for x, y in zip(target, draft, strict=True)]
    elif kind < 0.3:
        target = draft[::-1]
    draft[rng.randrange(n)] += not any(draft)
    target[rng.randrange(n)] += not any(target)
    return draft, target, rng.choice([1, 2, 2, 3, 4, 7])


def test_certificates_of_exact_problems_prove_the_optimum() -> None:
    """Catches a closed form, a cap or a cut that is off on any kind of distribution."""
    rng = random.Random(1)
    for _ in range(300):
        draft, target, k = random_laws(rng)
        p, q = [[Fraction(x, sum(law)) for x in law] for law in (draft, target)]
        proof = otm.solve(p, q, k).certificate
        assert proof.gap == 0
        assert proof.lower == brute_force_alpha(draft, target, k)
        proof.check()


def test_the_checker_accepts_exactly_the_caps_that_some_rule_attains() -> None:
    """Catches a level set that is not looked at: caps above c*, also just above, must fall."""
    rng = random.Random(2)
    verdicts = []
    for _ in range(400):
        draft, target, k = random_laws(rng)
        p, q = [[Fraction(x, sum(law)) for x in law] for law in (draft, target)]
        optimal = Fraction(otm.solve(p, q, k).certificate.cap)
        factors = [1 - TINY, 1 + TINY, 1 - NANO, 1 + NANO, Fraction(rng.randint(1, 300), 100)]
        for cap in [optimal, *(optimal * factor for factor in factors)]:
            try:
                mass = accepted_mass(draft, target, k, cap)
            except certificate.CertificateRefusedError:
                accepted = False
            else:
                accepted = True
                assert mass == sum(min(y, cap * x) for x, y in zip(p, q, strict=True))
            assert accepted == can_be_accepted(draft, target, k, cap)
            verdicts.append(accepted)
    assert 300 < sum(verdicts) < len(verdicts) - 300


DOCUMENTS = {exact: good_document(exact=exact) for exact in (True, False)}
NUMBERS = st.integers(-3, 12) | st.sampled_from([2**70, 2**1100, 10**40])
LEAVES = (
    st.none()
    | st.booleans()
    | NUMBERS
    | st.floats()
    | st.sampled_from(["1/2", "0/1", "1/0", "0x1.8p+0", "0x10", "nan", "exact", "bounded", ""])
    | st.builds(lambda a, b: f"{a}/{b}", NUMBERS, NUMBERS)
)


def nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children: Any = (
        value.items() if isinstance(value, dict)
        else enumerate(value) if isinstance(value, list) else ()
    )  # fmt: skip
    for key, child in children:
        yield from nodes(child, (*path, key))


@pytest.mark.parametrize("names", [(0, 1, 2, 3), (0, 2, 1, 3), (3, 2, 1, 0)])
def test_tokens_that_are_almost_tied_are_sorted_exactly(names: tuple[int, ...]) -> None:
    """Catches a sort by rounded ratios: tokens 1 and 2 are tied up to one part in 10^40.

    The accepted mass is too large on the tokens {0, 1} alone: without token 1 and with token 2 it
    is small enough, the slope of 1 − (1 − t)^2 at t = 1/3 being between their ratios.
    """
    delta, tie = Fraction(1, 10**50), Fraction(1, 10**40)
    p = [Fraction(1, 3), delta, delta]
    q = [Fraction(5, 9) - delta * tie / 2, delta * (1 + tie) * 4 / 3, delta * (1 - tie) * 4 / 3]
    unit = 18 * 10**90
    draft, target = ([int(x * unit) for x in (*law, 1 - sum(law))] for law in (p, q))
    draft, target = ([law[x] for x in names] for law in (draft, target))
    assert not can_be_accepted(draft, target, 2, Fraction(2))
    with pytest.raises(certificate.CertificateRefusedError):
        accepted_mass(draft, target, 2, Fraction(2))


@pytest.mark.parametrize("exact", [True, False])
@given(data=st.data())
def test_no_edit_of_a_document_crashes_the_checker_or_proves_what_is_false(
    exact: bool, data: st.DataObject
) -> None:
    """Catches both: an exception other than a refusal, and an unsound acceptance."""
    document = copy.deepcopy(DOCUMENTS[exact])
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from([x for x in nodes(document) if x]))
        parent = document
        for key in path:
            parent = parent[key]
        parent[last] = data.draw(LEAVES | st.lists(LEAVES, max_size=3))
    try:
        document = sealed(certificate.load(json.dumps(document)))
        certificate.check(document)
    except certificate.CertificateRefusedError:
        return
    draft, target = (certificate.weights(document[name], name) for name in ("draft", "target"))
    alpha = brute_force_alpha(draft, target, document["k"])
    assert parse(document["lower"]) <= alpha <= parse(document["upper"])


# What mutants of the checker showed to be untested


@pytest.mark.parametrize("arguments", [[], ["a.json", "b.json"]])
def test_a_wrong_number_of_files_has_a_status_of_its_own(arguments: list[str], capsys: Any) -> None:
    assert certificate.main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: ")


def test_no_drafts_are_refused_even_where_nothing_is_claimed() -> None:
    """Bug: k ≥ 0, for which an acceptance of 0 is proved."""
    document = good_document()
    document |= {"k": 0, "cut": [], "cap": "0/1", "plan": None, "lower": "0/1", "upper": "0/1"}
    document |= {"gap": "0/1", "status": "exact", "interval": [(0.0).hex(), (0.0).hex()]}
    with pytest.raises(certificate.CertificateRefusedError, match="at least one"):
        certificate.check(sealed(document))


@pytest.mark.parametrize("denominator", [0, -1])
def test_an_empty_plan_over_nothing_is_refused(denominator: int) -> None:
    """Bug: 0 = 0 for every marginal, and then a division by zero."""
    document = good_document()
    document["plan"] = {"denominator": denominator, "entries": []}
    with pytest.raises(certificate.CertificateRefusedError, match="not positive"):
        certificate.check(sealed(document))


def test_a_plan_that_falls_short_by_one_unit_is_refused() -> None:
    """Bug: an acceptance that is counted from one."""
    law = [Fraction(3, 4), Fraction(1, 4)]
    document = otm.solve(law, law[::-1], 2).certificate.to_document()
    plan = document["plan"]
    unit = 1 / Fraction(7 * plan["denominator"])
    masses = {(tuple(drafts), token): 7 * mass for drafts, token, mass in plan["entries"]}
    assert all(isinstance(mass, int) for mass in masses.values())
    for change, by in {((0, 0), 0): -1, ((0, 0), 1): 1, ((0, 1), 1): -1, ((0, 1), 0): 1}.items():
        masses[change] = masses.get(change, 0) + by
    entries = [[list(drafts), token, mass] for (drafts, token), mass in masses.items()]
    document["plan"] = {"denominator": 7 * plan["denominator"], "entries": entries}
    with pytest.raises(certificate.CertificateRefusedError, match="is below the lower bound"):
        certificate.check(sealed(document))
    lower = parse(document["lower"]) - unit
    document |= {"lower": str_of(lower), "gap": str_of(unit), "status": "bounded"}
    document["interval"] = [(0.0).hex(), (1.0).hex()]
    certificate.check(sealed(document))


@pytest.mark.parametrize("law", [[-1, 3], [0, 0], [], ["0x1p+0", "-0x1p-1"]])
def test_a_law_has_no_negative_weight_and_some_positive_one(law: list[Any]) -> None:
    """Bug: a negative weight that other weights make up for."""
    with pytest.raises(certificate.CertificateRefusedError, match="draft is not a distribution"):
        certificate.weights(law, "draft")


@pytest.mark.parametrize("token", [-1, 4])
def test_a_cut_holds_tokens_of_the_vocabulary_alone(token: int) -> None:
    """Bug: −1, which Python takes for the last token."""
    with pytest.raises(certificate.CertificateRefusedError, match="the cut has invalid tokens"):
        certificate.check_cut(DRAFT, TARGET, 2, [token], (1, 2), work=certificate.Work(0))


@pytest.mark.parametrize("k", [2, 3])
def test_an_upper_bound_that_is_too_small_by_next_to_nothing_is_refused(k: int) -> None:
    """Bug: a first look at the cut that is rounded in favour of the file."""
    draft, target = [2, 1], [2, 5]  # of 3 and 7: no power of two
    exact = Fraction(2, 7) + 1 - Fraction(2, 3) ** k
    for little, refused in ((0, False), (Fraction(1, 2**300), True)):
        upper = exact - little
        arguments = draft, target, k, [0], upper.as_integer_ratio()
        work = certificate.Work(10_000)
        if not refused:
            certificate.check_cut(*arguments, work=work)
            continue
        with pytest.raises(certificate.CertificateRefusedError, match="not prove the upper bound"):
            certificate.check_cut(*arguments, work=work)


def test_a_list_of_the_fields_is_no_certificate() -> None:
    """Bug: a nonempty list is taken for an object."""
    with pytest.raises(certificate.CertificateRefusedError, match="not a JSON object"):
        certificate.check(sorted(certificate.FIELDS))  # type: ignore[arg-type]


def test_a_refusal_names_the_type_or_the_text(capsys: Any) -> None:
    """Bug: a whole list in a message, or a type in place of what is misspelt."""
    for value, shown in (("0xzz", "'0xzz'"), ([1] * 1000, "list"), ("0x" + "z" * 1000, "'0xzzz")):
        with pytest.raises(certificate.CertificateRefusedError, match="not an integer") as refusal:
            certificate.weights([value, 1], "draft")
        assert str(refusal.value).startswith(f"draft: {shown}")
        assert len(str(refusal.value)) < 100


def test_the_limit_of_k_belongs_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a limit that leaves out the size that it names."""
    bits = 2 * sum(DRAFT).bit_length()  # of p(H)^2
    monkeypatch.setattr(certificate, "LARGEST_POWER_BITS", bits)
    certificate.check(good_document())
    monkeypatch.setattr(certificate, "LARGEST_POWER_BITS", bits - 1)
    with pytest.raises(certificate.CertificateRefusedError, match="k is too large"):
        certificate.check(good_document())


def test_no_nan_stands_for_nothing(tmp_path: Path, capsys: Any) -> None:
    """Bug: NaN is read as null, so that the digest matches."""
    text = json.dumps(sealed(good_document() | {"plan": None}))
    assert verdict(text, tmp_path) == 0
    assert "NaN" in refused(text.replace('"plan": null', '"plan": NaN'), tmp_path, capsys)


def test_the_digest_of_the_inputs_is_checked_beside_that_of_the_whole() -> None:
    """Bug: a certificate that is found under the digest of another question."""
    document = good_document()
    document["inputs_sha256"] = good_document(k=3)["inputs_sha256"]
    document["sha256"] = sha256({k: v for k, v in document.items() if k != "sha256"})
    with pytest.raises(certificate.CertificateRefusedError, match="inputs' digest is wrong"):
        certificate.check(document)


def test_the_program_says_what_is_proved(tmp_path: Path, capsys: Any) -> None:
    """Bug: an end of the interval as it stands in the file, in hexadecimal."""
    assert verdict(good_document(), tmp_path) == 0
    low, high = (float.fromhex(end) for end in good_document()["interval"])
    assert capsys.readouterr().out == f"proved (exact): {low!r} <= alpha <= {high!r}\n"


def test_a_plan_may_say_that_an_output_has_no_mass() -> None:
    """Bug: a strict comparison rejects explicit zeros, which other programs may write."""
    document = good_document()
    document["plan"]["entries"].append([[0, 0], 1, 0])
    certificate.check(sealed(document))


@pytest.mark.parametrize("token", [-1, 2])
def test_a_plan_outputs_tokens_of_the_vocabulary_alone(token: int) -> None:
    """Bug: −1, which Python takes for the last token, and n."""
    law = [Fraction(3, 4), Fraction(1, 4)]
    document = otm.solve(law, law[::-1], 2).certificate.to_document()
    entry = next(x for x in document["plan"]["entries"] if x[:2] == [[0, 0], 1])
    assert entry[2] > 0, "the last token is output, and was not drafted"
    entry[1] = token
    with pytest.raises(certificate.CertificateRefusedError, match="outputs out of range"):
        certificate.check(sealed(document))


def test_the_sign_of_a_fraction_is_that_of_both_its_numbers() -> None:
    """Bug: −3/−4 or 3/−4 read as another number, which would then be proved."""
    for text, expected in {"3/-4": (-3, 4), "-3/-4": (3, 4), "-3/4": (-3, 4)}.items():
        assert certificate.ratio(text) == expected


def test_no_digest_is_taken_of_what_json_cannot_hold() -> None:
    """Bug: a digest of NaN, which every reader would write in another way."""
    document = good_document() | {"lower": float("nan")}
    for digest in (certificate.digest, certificate.inputs_digest):
        with pytest.raises(certificate.CertificateRefusedError, match="no digest"):
            digest(document | {"k": float("inf")})


def test_the_largest_plan_is_written_and_checked() -> None:
    """Bug: a limit that leaves out the size that it names."""
    tokens, k = 64, 2
    assert tokens**k == certificate.LARGEST_PLAN
    each = Fraction(1, tokens)
    document = otm.solve([each] * tokens, [1] + [0] * (tokens - 1), k).certificate.to_document()
    entries = [[[x, y], 0, 1] for x in range(tokens) for y in range(tokens)]
    document["plan"] = {"denominator": tokens**k, "entries": entries}
    certificate.check(sealed(document))


@pytest.mark.parametrize("k", [12, 13])
def test_a_plan_has_at_most_twelve_drafts_even_of_one_token(k: int) -> None:
    """Bug: without a limit on k, n^k is computed for a huge k before the error."""
    document = otm.solve([Fraction(1)], [Fraction(1)], k).certificate.to_document()
    document["plan"] = {"denominator": 1, "entries": [[[0] * k, 0, 1]]}
    if k == 12:
        certificate.check(sealed(document))
        return
    with pytest.raises(certificate.CertificateRefusedError, match="draft tuples"):
        certificate.check(sealed(document))


def test_the_page_describes_every_field() -> None:
    """Bug: a format that others can only read from the checker's code."""
    page = Path(__file__).parents[1] / "docs" / "theory" / "certificates.md"
    text = page.read_text(encoding="utf-8")
    named = {name for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
             for name in re.findall(r"`(\w+)`", row)}  # fmt: skip
    assert named == certificate.FIELDS - {"schema"}
    assert f'"schema": "{certificate.SCHEMA}"' in text


def test_distributions_of_different_lengths_are_refused_as_such() -> None:
    """Catches a check of lengths that is always true, after which tokens are left out."""
    document = good_document()
    document["target"] = [*document["target"], 0]
    with pytest.raises(certificate.CertificateRefusedError, match="differ in length"):
        certificate.check(sealed(document))


def test_one_is_an_upper_bound_whatever_the_cut_is() -> None:
    """Catches a cut of value above one that must prove an upper end of one."""
    certificate.check_cut(DRAFT, TARGET, 2, [3], (1, 1), work=certificate.Work(0))
    with pytest.raises(certificate.CertificateRefusedError, match="does not prove the upper bound"):
        certificate.check_cut(DRAFT, TARGET, 2, [3], (99, 100), work=certificate.Work(0))


def test_floats_with_digits_beyond_the_least_normal_float_are_refused() -> None:
    """Catches a number that Python's reader would round, and an error for the least normal one."""
    assert certificate.as_float("0x1p-1022", "end") == sys.float_info.min
    for text in ("0x1p-1023", "0x1.8p-1023"):
        with pytest.raises(certificate.CertificateRefusedError, match="is not a finite float"):
            certificate.as_float(text, "end")


def test_every_step_pays_for_its_work() -> None:
    """Catches a quotient, a power or its memory that costs nothing."""

    def cost(step: Callable[[certificate.Work], object]) -> float:
        work = certificate.Work(0)
        before = work.left
        step(work)
        return before - work.left

    assert cost(lambda work: work.keep(3_000)) >= 40 * 100
    assert cost(lambda work: work.divide(3_000, 3_000)) >= 100 * 100
    bits = 2 * 3_000
    multiplying = cost(lambda work: work.multiply(bits // 2, bits // 2, times=3))
    keeping = cost(lambda work: work.keep(bits))
    assert cost(lambda work: work.power(3, 3_000)) == multiplying + keeping
    assert cost(lambda work: (work.power(3, 3_000), work.power(3, 3_000))) == multiplying + keeping
    long, longer = (1 << 3_000, 1), (1, 1 << 9_000)
    product = cost(lambda work: work.multiply(3_001, 9_001, times=2))
    assert cost(lambda work: certificate.at_most(long, longer, work)) == product
    quotient = cost(lambda work: work.divide(600, 3_001))
    powers = cost(lambda work: work.multiply(600, 600, times=2 * 3))
    assert quotient != cost(lambda work: work.divide(3_001, 600))
    assert quotient + powers == cost(
        lambda work: certificate.at_least_once(1, 1 << 3_000, 5, 600, up=True, work=work)
    )


def test_a_power_has_a_limit_of_its_own() -> None:
    """Catches a power of a base that was not checked before, which takes hours."""
    k = certificate.LARGEST_POWER_BITS // 2
    assert certificate.Work(math.inf).power(1, 2 * k) == 1
    assert certificate.Work(math.inf).power(2, 100) == 2**100
    with pytest.raises(certificate.CertificateRefusedError, match="k is too large"):
        certificate.Work(math.inf).power(3, k + 1)


@pytest.mark.parametrize("number", ["1_0", " 1", "1 ", "+1", "\u0661", "0b1", "0o7", "", "0x_1"])
def test_an_integer_has_digits_alone(number: str) -> None:
    """Catches spellings that Python reads and other checkers may read otherwise."""
    for text in (f"{number}/3", f"3/{number}"):
        with pytest.raises(certificate.CertificateRefusedError, match="not a fraction"):
            certificate.ratio(text)
    with pytest.raises(certificate.CertificateRefusedError, match="is not an integer"):
        certificate.weights([number], "draft")
    with pytest.raises(certificate.CertificateRefusedError, match="is not an integer"):
        certificate.weights(["0x" + number.removeprefix("0x") + "_"], "draft")


def test_a_large_k_is_refused_although_no_power_is_taken() -> None:
    """Catches a limit that only those claims meet that the first look does not settle."""
    document = good_document() | {
        "draft": [1, 1], "target": [1, 1], "cut": [], "cap": "0/1", "plan": None,
        "lower": "0/1", "upper": "1/1", "gap": "1/1", "interval": ["0x0p+0", "0x1p+0"],
        "status": "bounded",
    }  # fmt: skip
    most = certificate.LARGEST_POWER_BITS // 2  # a sum of two bits
    certificate.check(sealed(document | {"k": most}))
    with pytest.raises(certificate.CertificateRefusedError, match="k is too large"):
        certificate.check(sealed(document | {"k": most + 1}))


def test_tokens_are_compared_exactly_about_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an exact sort of unordered tokens, which would never end for long numbers."""
    rng, compared = random.Random(8), 0
    draft, target = ([rng.randrange(1, 10**9) for _ in range(1_000)] for _ in "pq")

    def counted(compare: Callable[[int, int], int]) -> Any:
        def counting(i: int, j: int) -> int:
            nonlocal compared
            compared += 1
            return compare(i, j)

        return functools.cmp_to_key(counting)

    monkeypatch.setattr(certificate, "cmp_to_key", counted)
    with suppress(certificate.CertificateRefusedError):
        certificate.accepted_mass(draft, target, 2, (2, 1), work=certificate.Work(0))
    assert 400 < compared < 1_100


def test_a_message_about_a_list_names_the_length_only_if_there_is_one() -> None:
    """Bug: "not a list of length None", or a wrong length called "not a list"."""
    with pytest.raises(certificate.CertificateRefusedError, match=r"^draft is not a list$"):
        certificate.as_list(3, "draft")
    with pytest.raises(certificate.CertificateRefusedError, match="list of length 2"):
        certificate.as_list([1], "draft", 2)
