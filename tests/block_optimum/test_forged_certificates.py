"""Forged certificates of blocks: none proves what is false, crashes the checker or takes long."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otm.block_optimum.certificate as checker
from otm import BlockCertificate
from otm.block_optimum.certificate import check
from otm.certificate import CertificateRefusedError, digest, load
from otm.errors import CertificateError
from tests.block_optimum.forgeries import Document, forged, holds, real_certificates

FORGERIES = 300
REAL = real_certificates()


def accepted_forgeries(count: int) -> tuple[int, int]:
    """Count the forgeries that the checker accepts, and the false ones among them."""
    accepted = false = 0
    refused: list[str] = []
    for seed in range(count):
        try:
            document = load(forged(REAL, seed))
            check(document)
        except CertificateRefusedError as error:
            refused.append(str(error))
            continue
        accepted += 1
        false += not holds(document)
    assert not any("\n" in message or len(message) > 250 for message in refused)
    return accepted, false


def test_the_oracle_agrees_with_real_certificates() -> None:
    """Bug: the oracle calls everything false, or the checker rejects a valid certificate."""
    for document in REAL:
        check(document)
        assert holds(document)


def test_no_forgery_is_accepted_unless_it_is_true() -> None:
    """Bug: any check that is missing, and any exception other than a refusal."""
    accepted, false = accepted_forgeries(FORGERIES)
    assert false == 0
    assert accepted > FORGERIES / 20, "changes that leave nothing true find nothing"


@pytest.mark.parametrize("weak", ["_check_hull", "_check_flow", "_check_antichain"])
def test_the_forgeries_find_a_checker_without_a_check(
    weak: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: a broken checker must accept some false forgeries."""
    monkeypatch.setattr(checker.CheckedTree, weak, lambda *_: None)
    assert accepted_forgeries(FORGERIES)[1] > 0


def certificate(nodes: list[Any], **fields: Any) -> Document:
    """Write a certificate of nodes that claims little."""
    document: Document = {
        "schema": checker.SCHEMA, "k": 2, "nodes": nodes, "trees": None,
        "accepted": ["0/1"] * len(nodes), "multipliers": [], "flow": None, "lower": "0/1",
        "upper": "9/1", "gap": "9/1", "interval": [(0.0).hex(), (9.0).hex()],
        "status": "bounded", "method": "", "versions": {},
    }  # fmt: skip
    document |= fields
    return document | {"sha256": digest(document)}


def long_number(bits: int) -> str:
    return hex(random.Random(bits).getrandbits(bits) | 1 | 1 << bits - 1)


def chain(count: int, draft: str, target: str) -> list[Any]:
    return [[y, 0, draft, target, 0] for y in range(count)]


TINY, LONG = (2.0**-1000).hex(), long_number(1_200_000)
RARE_STAR = [[0, y, (2.0**-1000).hex(), (2.0**-1000).hex(), 0] for y in range(3000)]
DEMANDING: dict[str, Callable[[], Document]] = {
    "products of rare nodes, level by level": lambda: certificate(chain(3000, TINY, TINY), k=1000),
    "products that fill the memory": lambda: certificate(chain(30_000, "2/536870909", "1/3")),
    "one ratio of a million bits": lambda: certificate([[0, 0, f"1/{LONG}", "1/2", 0]], k=3),
    "a million bits of a multiplier": lambda: certificate(
        [[0, 0, "1/3", "1/2", 0]], multipliers=[[[1], f"1/{LONG}"]] * 9
    ),
    "long ratios without a common divisor": lambda: certificate(
        [[0, y, "0/1", f"1/{long_number(20_000 + y)}", 0] for y in range(40)]
    ),
    "short ratios without a common divisor": lambda: certificate(
        [[0, y, "0/1", f"1/{random.Random(y).getrandbits(60) | 1 << 59}", 0] for y in range(6000)]
    ),
    "antichains far below the root": lambda: certificate(
        chain(4000, "1/1", "1/1"), multipliers=[[[4000], "1/1"]] * 4000
    ),
    "many antichains and drafted trees": lambda: certificate(
        [[0, 0, None, "1/1", 0]],
        k=None,
        flow=[],
        trees=[[[1], "1/9999"]] * 3000,
        multipliers=[[[1], "1/1"]] * 3000,
    ),
    "a power of many digits": lambda: certificate(
        [[0, 0, "1/3", "1/1", 0]],
        k=2**26,
        multipliers=[[[1], "1/1"]],
        lower="1/1",
        upper="1/1",
        gap="0/1",
        status="exact",
        accepted=["1/1"],
    ),
}


@pytest.mark.parametrize("name", DEMANDING)
def test_a_file_that_asks_for_hours_of_work_is_refused(name: str) -> None:
    """Bug: work that is not paid for before it is done."""
    with pytest.raises(CertificateRefusedError, match=r"k too large|k is too large"):
        check(DEMANDING[name]())


def test_rare_nodes_side_by_side_are_decided() -> None:
    """Bug: powers of long numbers, 3,000 times 1,000-fold, where fixed point decides."""
    accepted = [(2.0**-1001).hex()] * 3000
    multipliers = [[[y], "1/1"] for y in range(1, 3001)]
    check(certificate(RARE_STAR, k=1000, accepted=accepted, multipliers=multipliers))
    ordinary = [0, 3000, "0x1.8p-1", "0x1.8p-1", 0]
    accepted = [*accepted, "0x1.8p-1"]
    check(certificate([*RARE_STAR, ordinary], k=1, accepted=accepted))
    likelier = [0, 3000, "0x1.8p-1", "0x1.8000000000001p-1", 0]
    with pytest.raises(CertificateRefusedError, match="more on an antichain"):
        check(certificate([*RARE_STAR, likelier], k=1, accepted=[*accepted[:-1], likelier[3]]))


ONE, HALF = [0, 0, "1/2", "1/2", 0], [0, 0, None, "1/2", 0]
TABLE: Document = {"k": None, "flow": [], "trees": [[[1], "1/1"]]}
ODD: dict[str, tuple[list[Any], Document, str]] = {
    "a float as a node": ([HALF], TABLE | {"flow": [[0, 1.0, "0/1"]]}, "not in its draft tree"),
    "a list as a node": ([HALF], TABLE | {"flow": [[0, [1], "0/1"]]}, "not in its draft tree"),
    "a boolean as a tree": ([HALF], TABLE | {"flow": [[False, 1, "0/1"]]}, "not start at"),
    "a boolean as a node": ([ONE], {"multipliers": [[[True], "1/1"]]}, "not a set of nodes"),
    "digits of another script": ([[0, 0, "١/٢", "1/2", 0]], {}, "not a fraction"),
    "underscores": ([[0, 0, "1_0/2_0", "1/2", 0]], {}, "not a fraction"),
    "blanks": ([[0, 0, " 1/2", "1/2", 0]], {}, "not a fraction"),
    "a sign": ([[0, 0, "+1/2", "1/2", 0]], {}, "not a fraction"),
    "a float that is rounded": ([[0, 0, "0x1.00000000000001p-1", "1/2", 0]], {}, "not a finite"),
    "a float that underflows": ([[0, 0, "0x1p-1080", "1/2", 0]], {}, "not a finite float"),
    "decimals read as hexadecimal": ([[0, 0, "0.5", "1/2", 0]], {}, "not a finite float"),
    "a token that is repeated by hashes": ([[0, 2**61 - 1, "1/2", "1/2", 0]], {}, "not a token id"),
    "k beside a table": ([HALF], TABLE | {"k": 2}, "k must be null"),
    "a draft probability beside a table": ([ONE], TABLE, "in addition to the table"),
    "a flow of i.i.d. paths": ([ONE], {"flow": []}, "flow must be null"),
    "k beyond 64 bits": ([ONE], {"k": 2**63}, "not a number of paths"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_written_in_an_odd_way_is_refused(name: str) -> None:
    """Bug: an exception of another kind, or a number that two readers read differently."""
    nodes, fields, message = ODD[name]
    with pytest.raises(CertificateRefusedError, match=message):
        check(certificate(nodes, **fields))


@pytest.mark.parametrize("text", ['"k": 1e999', '"k": NaN', '"k": 1, "k"', '"k": ' + "[" * 10**5])
def test_files_that_json_does_not_allow_give_one_error(text: str, tmp_path: Path) -> None:
    """Bug: infinity, which JSON's parser makes of a number, in the digest."""
    (tmp_path / "forged.json").write_text(json.dumps(REAL[0]).replace('"k"', text, 1))
    with pytest.raises(CertificateError) as refusal:
        BlockCertificate.load(tmp_path / "forged.json")
    assert "\n" not in str(refusal.value)


JUNK = [True, -1.5, "x", b"x", [0], {}, {1}, object(), float("nan"), np.array([1, 2]), 10**4000]


@pytest.mark.parametrize("name", ["document", *sorted(checker.FIELDS)])
def test_a_field_of_another_type_gives_one_error(name: str) -> None:
    """Bug: the error of the first comparison with such a value reaches the caller."""
    document = REAL[0]
    for value in JUNK:
        if (name, type(value)) in (("method", str), ("versions", dict)):
            continue  # these are right
        changed = value if name == "document" else document | {name: value}
        with suppress(CertificateRefusedError, TypeError, AttributeError):  # else the old digest
            changed |= {} if name == "sha256" else {"sha256": digest(changed)}
        found = dataclasses.replace(BlockCertificate(document), document=changed)
        with pytest.raises(CertificateError) as refusal:
            found.check()
        assert "\n" not in str(refusal.value)
    with pytest.raises(CertificateError, match="no valid lower bound"):
        _ = BlockCertificate({"lower": None}).lower
