"""What the kernels load and store: as many bytes as their rules need, and never out of place.

Counted in Triton's interpreter, from the masks and addresses of each load, store and atomic
addition.  The fixture `small_blocks` looks for accesses out of place in all tests that use it.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", minversion="3.7", reason="interprets kernels from Triton 3.7 on")

from otm.kernels import SparseDrafts, verify_logits, verify_probs  # noqa: E402
from otm.kernels.common import one_chain, runtime  # noqa: E402
from otm.kernels.common.runtime import jit, tl  # noqa: E402
from otm.kernels.multi_draft import triton as multi_draft  # noqa: E402
from otm.kernels.optimal.numpy import edge_count  # noqa: E402
from otm.kernels.optimal.triton_steps import SECTIONS, SECTIONS_OF_WALK, SUMS  # noqa: E402
from otm.kernels.registry import uniforms_per_position  # noqa: E402
from otm.rules import names  # noqa: E402
from tests.kernels.compiled.accesses import apart, recorded  # noqa: E402

pytestmark = pytest.mark.skipif(
    runtime.triton is None or runtime.compiles(), reason="accesses are seen in the interpreter"
)

SEVERAL = names("kernel", several=True, backend="triton")
NUMBER = 8  # bytes of the numbers in tables
CHAINS = 2
LISTED = 16  # tokens of a sparse draft
OF_LISTED = 8 + 4  # bytes of a token in a list, and of its probability
OF_TABLE = 14 + 5  # numbers that making a table reads and writes for each edge


class Passes(NamedTuple):
    """What a rule has to do for each token of the vocabulary, and for each edge of its bins."""

    rows: int  # entries of rows that are read
    looked_up: int = 0  # numbers of tables that are read
    added: int = 0  # and added to
    of_edges: int = 0  # numbers for each edge
    lists: int = 0  # of sparse drafts, read by each block of tokens


def needed(rule: str, gamma: int, accepted: int, *, logits: bool) -> Passes:
    """Count what a rule needs of a sequence: the table of docs/tables/kernels.md."""
    rejected = accepted < gamma
    last = 1 + rejected  # the residual is made of two rows, the bonus token drawn from one
    sums = 2 * gamma + 1 if logits else 0  # before a row is used, it is read for its softmax
    if rule == "chain":
        return Passes(sums + last)
    if rule == "block":
        return Passes(sums + 2 * gamma + 1)
    reached = accepted + rejected
    if rule == "grid walk and keep":  # the bins of two rows are summed, then their residual
        rows = CHAINS * sums + 4 * reached + (not rejected)
        return Passes(rows, 2 * reached, SUMS * reached, (SUMS + SECTIONS_OF_WALK) * reached)
    rows = CHAINS * sums + 2 * reached + last
    if rule == "grid k-Seq":
        return Passes(rows)
    return Passes(rows, 2 * rejected, SUMS * reached, (SUMS + SECTIONS) * reached)


def needed_of_lists(rule: str, gamma: int, accepted: int, *, logits: bool) -> Passes:
    """Count what a rule needs where drafts are sparse: of whole rows the target's alone."""
    rejected = accepted < gamma
    sums = gamma + 1 if logits else 0
    if rule == "chain":
        return Passes(sums + 1, lists=gamma + rejected)
    if rule == "block":
        return Passes(sums + gamma + 1, lists=gamma * (gamma + 2))
    table = OF_TABLE * (accepted + rejected) if rule == "grid optimal" else 0
    return Passes(CHAINS * sums + 1, of_edges=table, lists=1 + rejected)


CASES = [
    ("chain", 2, 1, "probabilities"),
    ("chain", 2, 2, "probabilities"),
    ("chain", 2, 1, "logits"),
    ("block", 2, 1, "probabilities"),
    ("block", 2, 1, "logits"),
    ("grid k-Seq", 1, 0, "probabilities"),
    ("grid k-Seq", 1, 1, "probabilities"),
    ("grid k-Seq", 1, 0, "logits"),
    ("grid optimal", 1, 0, "probabilities"),
    ("grid optimal", 1, 1, "probabilities"),
    ("grid optimal", 1, 0, "logits"),
    ("grid walk and keep", 1, 0, "probabilities"),
    ("grid walk and keep", 1, 1, "probabilities"),
    ("chain", 2, 1, "sparse"),
    ("chain", 2, 1, "sparse logits"),
    ("block", 2, 1, "sparse"),
    ("grid k-Seq", 1, 0, "sparse"),
    ("grid optimal", 1, 0, "sparse"),
    ("chain", 2, 1, "packed"),
    ("block", 2, 1, "packed"),
]
"""Rules, γ, how many drafts are accepted, and what the rows hold."""


def sequence(rule: str, gamma: int, accepted: int, size: int, *, logits: bool) -> list[Any]:
    """Make one sequence with `accepted` accepted drafts; all chains are equal."""
    rng = np.random.default_rng(size)
    target, draft = (rng.random((gamma + extra, size)) for extra in (1, 0))
    tokens = rng.integers(size, size=gamma)
    for i, token in enumerate(tokens):
        # by a target of 0 for the drafts they are rejected by every rule
        target[i, token], draft[i, token] = (size, 1.0) if i < accepted else (0.0, size)
    target, draft = (x / x.sum(axis=1, keepdims=True) for x in (target, draft))
    if logits:
        with np.errstate(divide="ignore"):
            target, draft = np.log(target), np.log(draft)
    uniforms = np.full(gamma * uniforms_per_position(rule, CHAINS) + 2, 0.5)
    arrays = [torch.from_numpy(x)[None] for x in (target, draft, tokens, uniforms)]
    arrays[:2] = [x.to(torch.bfloat16 if logits else torch.float32) for x in arrays[:2]]
    if rule in SEVERAL:
        arrays[:3] = [torch.stack([x] * CHAINS, 1) for x in arrays[:3]]
    return arrays


def listing(tokens: Any, accepted: int, size: int) -> SparseDrafts[Any]:
    """List the drafts [..., γ] and other tokens, so that as many are accepted as of rows."""
    rng = np.random.default_rng(size)
    further = torch.from_numpy(rng.integers(size, size=LISTED - 1)).expand(*tokens.shape, -1)
    probs = torch.full((*tokens.shape, LISTED), 1e-6)
    probs[..., accepted:, 0] = 1.0  # of the drafts; those that are accepted have less by the draft
    return SparseDrafts(torch.cat([tokens[..., None], further], -1), probs)


def packing(sequences: list[list[Any]]) -> tuple[list[Any], Any]:
    """Pack sequences of several lengths; their uniforms are those of the first, the longest."""
    rows = [torch.cat([each[part][0] for each in sequences]) for part in range(3)]
    lengths = [each[2].shape[1] for each in sequences]
    return [*rows, sequences[0][3].expand(len(sequences), -1)], torch.tensor([0, *lengths]).cumsum(
        0
    )


def moved(rule: str, gamma: int, accepted: int, kind: str) -> tuple[float, float]:
    """Verify a sequence, and return the ratio of all bytes that move to those that must.

    The second number is how many rows a launch reads again, having read them already, at most.
    """
    logits, sparse = "logits" in kind, "sparse" in kind
    blocks = 32 if sparse else 8  # a block of a sparse draft is written out, to draw from it
    size = blocks * runtime.BLOCK
    if rule == "grid k-Seq" or (sparse and rule in SEVERAL):  # its blocks are half as long
        size //= 2
    arguments, options = sequence(rule, gamma, accepted, size, logits=logits), {}
    passes = [(needed_of_lists if sparse else needed)(rule, gamma, accepted, logits=logits)]
    if sparse:
        arguments[1] = listing(arguments[2], accepted, size)
    if kind == "packed":
        shorter = sequence(rule, gamma - 1, accepted, size, logits=False)
        arguments, options["offsets"] = packing([arguments, shorter])
        passes.append(needed(rule, gamma - 1, accepted, logits=False))
    verify = verify_logits if logits else verify_probs
    with recorded() as launches:
        outcome = verify(*arguments, rule=rule, backend="triton", validate=False, **options)
    assert outcome.accepted.tolist() == [accepted] * len(passes)
    must = sum(each.rows for each in passes) * size * arguments[0].element_size()
    must += sum(each.looked_up + each.added for each in passes) * size * NUMBER
    must += sum(each.of_edges for each in passes) * edge_count(CHAINS) * NUMBER
    must += sum(each.lists for each in passes) * blocks * LISTED * OF_LISTED
    moves = sum(access.nbytes for launch in launches for access in launch.accesses)
    rows = ("target",) if sparse else ("target", "draft")
    again = max(launch.read_again(*rows) for launch in launches)
    return moves / must, again / (size * arguments[0].element_size())


@pytest.mark.parametrize(("rule", "gamma", "accepted", "kind"), CASES)
def test_kernels_move_the_bytes_that_their_rules_need(
    rule: str, gamma: int, accepted: int, kind: str
) -> None:
    """Catches a row read twice, and sums of blocks that all programs read."""
    ratio, again = moved(rule, gamma, accepted, kind)
    assert 1 <= ratio < 1.15
    assert again < 0.01  # the entries of drafts, which every program reads


@pytest.mark.parametrize("kind", ["probabilities", "sparse", "packed"])
def test_a_needless_pass_is_seen(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(kernel: Any, *arguments: Any, **constants: Any) -> None:
        for _ in range(1 + (kernel is one_chain.add_up)):
            runtime.launch(kernel, *arguments, **constants)

    monkeypatch.setattr(one_chain, "launch", launch)
    assert moved("chain", 2, 1, kind)[0] > 1.9


def test_a_row_that_every_program_reads_is_seen() -> None:
    source, target = apart(torch.ones(8)), apart(torch.ones(8))
    with recorded() as launches:
        add_one[(2,)](source, target, 8, 4, "right")
        add_one[(2,)](source, target, 8, 4, "whole row")
    assert [launch.read_again("source") for launch in launches] == [0, 2 * 8 * 4]


@pytest.mark.parametrize("rule", names("kernel", backend="triton"))
@pytest.mark.usefixtures("small_blocks")
def test_rows_apart_in_memory(rule: str, several: Callable[..., Any], device: str) -> None:
    """Catches a mask that lets the entries beyond a row be read, also where the batch is one."""
    rng = np.random.default_rng(1)
    count = CHAINS if rule in SEVERAL else 1
    for batch, size, logits in ((3, 7, False), (1, 9, True), (1, 1, True)):
        inputs = several(rng, batch, count, 1 + (size == 7), size, rule=rule)
        if rule not in SEVERAL:
            inputs = [*(x[:, 0] for x in inputs[:3]), inputs[3]]
        if logits:
            inputs[:2] = [x.log().bfloat16() for x in inputs[:2]]
        inputs = [apart(x, 5 if i < 2 else 0) for i, x in enumerate(inputs)]
        verify = verify_logits if logits else verify_probs
        outcome = verify(*inputs, rule=rule, backend="triton", validate=False)
        if not logits:  # else the softmax depends on the length of blocks
            assert outcome.tokens.tolist() == verify(*inputs, rule=rule).tokens.tolist()


@jit
def add_one(
    source: tl.tensor, target: tl.tensor, size: tl.tensor, block: tl.constexpr, case: tl.constexpr
) -> None:
    """Write source + 1 into target, in the wrong way of a case."""
    program = tl.program_id(0)
    place = program * block + tl.arange(0, block)
    inside = place < size
    if case == "no mask to load":
        values = tl.load(source + place)
    else:
        values = tl.load(source + place, mask=inside, other=0.0)
    if case == "no mask to store":
        tl.store(target + place, values + 1)
    elif case == "added up":
        tl.atomic_add(target, tl.sum(values, 0))
    else:
        tl.store(target + place, values + 1, mask=inside)
    if case == "whole row":
        tl.store(target + place, values + tl.sum(tl.load(source + tl.arange(0, 8)), 0))
    if case == "same address":
        tl.store(target + size - 1, 0.0)
    if case == "of another program":
        values += tl.load(target + (place + 1) % size, mask=inside, other=0.0)
    if case in {"no barrier", "barrier"}:
        if case == "barrier":
            tl.debug_barrier()
        values += tl.load(target + place, mask=inside, other=0.0)
        if case == "barrier":
            tl.debug_barrier()
        tl.store(target + place, values, mask=inside)
    if case == "read while added up":
        tl.atomic_add(target + place, 1.0, mask=inside)


@pytest.mark.parametrize(
    ("case", "faults"),
    [
        ("right", []),
        ("added up", []),
        ("barrier", []),
        ("no mask to load", ["load outside of all arguments"]),
        ("no mask to store", ["store outside of all arguments"]),
        ("same address", ["programs conflict in target", "threads"]),
        ("of another program", ["programs conflict in target"]),
        ("no barrier", ["threads of a program conflict in target"]),
        ("read while added up", ["threads of a program conflict in target"]),
    ],
)
def test_accesses_out_of_place_are_seen(case: str, faults: list[str]) -> None:
    source, target = apart(torch.ones(10)), apart(torch.ones(10))
    with recorded() as launches:
        add_one[(3,)](source, target, 10, 4, case)
    found = launches[0].faults
    if not faults:
        assert found == []
    for fault in faults:
        assert any(fault in x for x in found), found


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.float16])
def test_memory_that_nobody_wrote_is_seen(dtype: Any) -> None:
    with recorded() as launches:
        for source in (torch.empty(8, dtype=dtype), apart(torch.ones(8, dtype=dtype))):
            add_one[(2,)](source, apart(torch.ones(8, dtype=dtype)), 8, 4, "right")
    assert launches[0].faults == ["add_one: load of source, unwritten"] * 2
    assert launches[1].faults == []


def test_a_gap_between_rows_is_no_part_of_them() -> None:
    source, target = apart(torch.ones(2, 3), gap=1), apart(torch.ones(8))
    with recorded() as launches:
        add_one[(2,)](source, target, 7, 4, "right")
    assert launches[0].faults == ["add_one: load between elements of source"]


SLIPS: dict[str, tuple[str, str, str, str]] = {
    "padded rows are read": (
        "common.one_chain", "token, token < rows.size, True", "token, token >= 0, True",
        "between elements",
    ),
    "every program writes": (
        "common.one_chain", "if block == 0:", "if block >= 0:", "programs conflict"
    ),
    "stored and not added": (
        "k_seq.triton_steps", "tl.atomic_add(sums + place, tl.sum(values, 0), sem=\"relaxed\")",
        "tl.store(sums + place, tl.sum(values, 0))", "programs conflict",
    ),
    "no barrier": (
        "optimal.triton_steps", "replaces them.\n    tl.debug_barrier()", "", "threads",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "right", "wrong", "fault"), SLIPS.values(), ids=SLIPS)
@pytest.mark.usefixtures("device")
def test_slips_in_the_kernels_are_seen(  # noqa: PLR0917
    name: str,
    right: str,
    wrong: str,
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    several: Callable[..., Any],
) -> None:
    monkeypatch.setattr(runtime, "BLOCK", 8)
    original = import_module(f"otm.kernels.{name}")
    source = inspect.getsource(original)
    assert source.count(right) == 1
    path = tmp_path / f"{name}.py"
    path.write_text(source.replace(right, wrong), encoding="utf-8")
    specification = importlib.util.spec_from_file_location("slip", path)
    assert specification is not None
    assert specification.loader is not None
    slip = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(slip)
    rule = "grid optimal" if name == "optimal.triton_steps" else "grid k-Seq"
    inputs = [apart(x) for x in several(np.random.default_rng(1), 2, 2, 1, 9, rule=rule)]
    with recorded() as launches:
        if name == "common.one_chain":
            one = [*(apart(x[:, 0], 5) for x in inputs[:2]), apart(inputs[2][:, 0]), inputs[3]]
            slip.verify_chain(*one, by_block=False)
        else:
            for function in ("add_up_factors", "make_table"):
                if hasattr(slip, function):
                    monkeypatch.setattr(multi_draft, function, getattr(slip, function))
            verify_probs(*inputs, rule=rule, backend="triton")
    assert any(fault in x for launch in launches for x in launch.faults)
