"""Slips in Triton's kernels that a self-check must see, each in a copy of the kernels."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", minversion="3.7", reason="interprets kernels from Triton 3.7 on")

from otm.kernels import SparseDrafts  # noqa: E402
from otm.kernels import verify as chain_entry  # noqa: E402
from otm.kernels.common import runtime  # noqa: E402
from otm.kernels.layout import Chains  # noqa: E402
from otm.kernels.registry import uniforms_per_position  # noqa: E402
from otm.kernels.self_check import chain_cases  # noqa: E402
from otm.kernels.self_check import run as self_check  # noqa: E402
from otm.kernels.tree import cases as tree_cases  # noqa: E402
from otm.kernels.tree import verify as tree_entry  # noqa: E402
from otm.kernels.tree.checks import Trees  # noqa: E402
from otm.rules import Rule, named  # noqa: E402

pytestmark = pytest.mark.skipif(runtime.compiles(), reason="needs TRITON_INTERPRET=1")

PACKAGE = Path(runtime.__file__).parents[1]
BLOCK = 8
"""Tokens of a block, so that a small vocabulary has several."""


class Slip(NamedTuple):
    """A line of a kernel, what is written in its place, and a call of the kernel."""

    file: str
    right: str
    wrong: str
    rule: str = "chain"
    logits: bool = False
    sparse: bool = False
    packed: bool = False


OF_MASSES = (
    "token, token < rows.size, True, kind)\n"
    "    if width > 0:\n"
    "        draft_prob = tl.zeros_like(prob)"
)

SLIPS = {
    "draft and target swapped": Slip(
        "common/one_chain",
        "known & (coin * draft_prob < target_prob)",
        "known & (coin * target_prob < draft_prob)",
    ),
    "residual of the first row": Slip(
        "common/one_chain",
        "draft_prob = draft_at(rows, position, token, known, subtract, kind)",
        "draft_prob = draft_at(rows, position * 0, token, known, subtract, kind)",
    ),
    "bonus of the row before": Slip(
        "common/one_chain",
        f"prob = target_at(rows, position, {OF_MASSES}",
        f"prob = target_at(rows, tl.minimum(position, rows.gamma - 1), {OF_MASSES}",
    ),
    "residual not clamped": Slip(
        "common/one_chain",
        "return tl.maximum(left - mass(draft_prob, _UNIT), 0)",
        "return tl.abs(left - mass(draft_prob, _UNIT))",
    ),
    "the last tile without a mask": Slip(
        "common/one_chain",
        OF_MASSES,
        OF_MASSES.replace("token < rows.size", "token >= 0"),
    ),
    "a block one token off": Slip(
        "common/one_chain",
        "start = block * block_size\n    token",
        "start = block * block_size + (block > 0)\n    token",
    ),
    "uniforms of residual and bonus swapped": Slip(
        "common/one_chain",
        "tl.where(rejected, gamma, gamma + 1)",
        "tl.where(rejected, gamma + 1, gamma)",
    ),
    "padding is a draft": Slip(
        "common/distributions/triton", "tl.where(token < 0, step", "tl.where(token < -1, step"
    ),
    "the output ends too late": Slip(
        "common/draw", "mask=place < accepted, other=-1", "mask=place <= gamma - 1, other=-1"
    ),
    "an edge of the token before": Slip(
        "common/draw",
        "above = tl.cumsum(values, 0) > point\n    return",
        "above = tl.cumsum(values, 0) - values > point\n    return",
    ),
    "the sum of the first block alone": Slip(
        "common/draw",
        "total = tl.sum(values, 0)",
        "total = tl.sum(tl.where(block == 0, values, 0), 0)",
    ),
    "the last of equal logits": Slip(
        "common/distributions/triton",
        "certain = tl.min(tl.where(inside & (tops == peak), sums, size), 0)",
        "certain = tl.max(tl.where(inside & (tops == peak), sums, 0), 0)",
        logits=True,
    ),
    "temperature of the first sequence": Slip(
        "common/distributions/triton", "chain // chains * temperature_sequence", "0", logits=True
    ),
    "softmax by the peak of one block": Slip(
        "common/distributions/triton",
        "factor = exp2((tops - peak) * scale)",
        "factor = exp2((tops - tops) * scale)",
        logits=True,
    ),
    "a list without its last token": Slip(
        "common/rows/triton",
        "mask=inside, other=0.0)  # [m]",
        "mask=inside & (place > 5), other=0.0)",
        sparse=True,
    ),
    "packed rows of the first sequence": Slip(
        "common/distributions/triton",
        "most = tl.minimum(tl.load(offsets + chain + 1).to(tl.int64) - start, gamma)  # scalar\n",
        "most = tl.minimum(tl.load(offsets + chain + 1).to(tl.int64) - start, gamma)\n"
        "        start = chain * 0\n",
        packed=True,
    ),
    "the shortest part that passes": Slip(
        "block/triton_steps",
        "count = tl.where(passes, i, count)",
        "count = tl.where(passes & (count == 0), i, count)",
        rule="block",
    ),
    "weights that grow": Slip(
        "block/triton_steps",
        "tl.where(weighted > 0, 1.0, 0.0)",
        "tl.where(weighted > 0, weighted / tl.maximum(of_draft, 1e-9), 0.0)",
        rule="block",
    ),
    "sums of the call before": Slip(
        "multi_draft/triton",
        "    sums[..., :cleared].zero_()\n",
        "",
        rule="grid k-Seq",
    ),
    "the first coin for all chains": Slip(
        "multi_draft/triton_steps",
        "before * coins + chain, mask=known",
        "before * coins + 0 * chain, mask=known",
        rule="grid k-Seq",
    ),
    "rows of the first chain": Slip(
        "multi_draft/triton_steps",
        "target, draft = first.target + chain * of.target_chain,",
        "target, draft = first.target,",
        rule="grid k-Seq",
    ),
    "one draft too many": Slip(
        "k_seq/triton_steps", "tl.where(i < count,", "tl.where(i <= count,", rule="grid k-Seq"
    ),
    "a slot's uniform for the winner": Slip(
        "multi_draft/triton_steps",
        "coin = tl.load(uniforms + before * coins + of.paths.chains)",
        "coin = tl.load(uniforms + before * coins)",
        rule="grid optimal",
    ),
    "a sampled child is not taken out": Slip(
        "tree/triton", "batch + sequence, rest - below)", "batch + sequence, rest)", rule="tree"
    ),
    "nothing is subtracted": Slip(
        "tree/triton", "tl.where(rest > 0, share, 0.0)", "share * 0.0", rule="tree"
    ),
    "uniforms of the first level": Slip(
        "tree/triton",
        "(sequence * levels + level) * passes",
        "sequence * levels * passes",
        rule="tree",
    ),
    "one coin keeps all nodes": Slip(
        "tree_walk/triton_kernels",
        "coins = uniforms + (sequence * levels + level) * 4",
        "coins = uniforms + sequence * levels * 4",
        rule="tree_walk",
    ),
}


TRITON = re.compile(
    r"otm\.kernels\.(?=(?:\w+\.)+triton|common\.(?:draw|one_chain|runtime))|"
    r"otm\.kernels\.(?=common import runtime)"
)
"""What a copy of the kernels imports from itself: the modules that need Triton."""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a copy of the kernels, as a package of another name."""
    copy = tmp_path_factory.mktemp("kernels") / "kernels_with_a_slip"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "__init__.py").write_text("", encoding="utf-8")
    for file in copy.rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        file.write_text(TRITON.sub(f"{copy.name}.", source), encoding="utf-8")
    return copy


def write(file: Path, source: str) -> None:
    """Write a module that Python may have compiled before."""
    file.write_text(source, encoding="utf-8")
    Path(cache_from_source(str(file))).unlink(missing_ok=True)


@pytest.fixture
def reason_of(copied: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Slip], str]]:
    """Reason of the self-check of a call, whose kernels have a slip."""
    name, right = copied.name, dict[Path, str]()

    def check(slip: Slip) -> str:
        file = copied / f"{slip.file}.py"
        source = right[file] = file.read_text(encoding="utf-8")
        assert source.count(slip.right) == 1, source.count(slip.right)
        write(file, source.replace(slip.right, slip.wrong))
        monkeypatch.syspath_prepend(copied.parent)
        # four sequences at a time: most slips show soon
        monkeypatch.setattr(chain_cases, "MOST_ENTRIES", 620)
        for module in (runtime, importlib.import_module(f"{name}.common.runtime")):
            monkeypatch.setattr(module, "BLOCK", BLOCK)
        if slip.rule.startswith("tree"):
            module = importlib.import_module(f"{name}.{slip.rule}.triton")
            importlib.import_module(f"otm.kernels.{slip.rule}.triton")
            monkeypatch.setattr(f"otm.kernels.{slip.rule}.triton", module)
            return self_check.run_check(call_of_tree(slip.rule == "tree_walk")).reason
        load = Rule.load_kernel

        def load_copy(rule: Rule, backend: str) -> Any:
            if backend != "triton":
                return load(rule, backend)
            kernel = rule.kernel.rpartition(".")[2]
            return importlib.import_module(f"{name}.{kernel}.triton")

        monkeypatch.setattr(Rule, "load_kernel", load_copy)
        return self_check.run_check(call_of(slip)).reason

    yield check
    for file, source in right.items():
        write(file, source)
    for module in [x for x in sys.modules if x.partition(".")[0] == name]:
        del sys.modules[module]


def call_of(slip: Slip) -> self_check.Call:
    """Return a call of the kernels of a slip."""
    several = named(slip.rule, "kernel").several
    size, gamma = (11, 2) if several else (19, 3)
    lead = (1, 2) if several else (1,)
    rows, tokens = torch.zeros(*lead, gamma + 1, size), torch.zeros(*lead, gamma, dtype=torch.int64)
    coins = gamma * uniforms_per_position(slip.rule, 2 if several else 1) + 2
    uniforms = torch.zeros(1, coins, dtype=torch.float64)
    draft: Any = rows[..., :-1, : size - 1]
    if slip.sparse:
        draft = SparseDrafts(tokens[..., None].expand(1, gamma, 6), rows[..., :-1, :6])
    if slip.packed:
        rows, draft, tokens = rows[0], draft[0], tokens[0]
    offsets = torch.tensor([0, gamma]) if slip.packed else None
    warmth = torch.ones(1) if slip.logits else None
    chains = Chains(rows, draft, tokens, uniforms, warmth, offsets)

    return chain_cases.call_of_chains(
        slip.rule, chains, partial(chain_entry._verify, named(slip.rule, "kernel"))
    )


def call_of_tree(whole_paths: bool) -> self_check.Call:
    """Return a call of the kernels for trees, token by token or for whole paths."""
    rows, numbers = torch.zeros(1, 6, 11), torch.zeros(1, 5, dtype=torch.int64)
    trees = Trees(numbers, numbers, numbers > 0, torch.zeros(1, 3, 4, dtype=torch.float64))
    verify = tree_entry._walk_and_keep if whole_paths else tree_entry._walk
    return tree_cases.call_of_trees(rows, rows, trees, None, verify, whole_paths=whole_paths)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # as on a GPU
@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_seen(name: str, reason_of: Callable[[Slip], str]) -> None:
    assert " in Triton, " in reason_of(SLIPS[name])


def test_right_kernels_pass_in_a_copy(reason_of: Callable[[Slip], str]) -> None:
    assert not reason_of(
        Slip(
            "common/one_chain",
            "count = tl.load(accepted + chain)",
            "count = tl.load(accepted + chain)",
        )
    )


def test_what_depends_on_the_number_of_sequences_is_not_seen(
    reason_of: Callable[[Slip], str],
) -> None:
    """The limit that docs/production.md states: offsets of 32 bits fail in large batches alone."""
    wide = "chain = tl.program_id(0).to(tl.int64)\n    row, block = "
    assert not reason_of(Slip("common/one_chain", wide, wide.replace(".to(tl.int64)", "")))
