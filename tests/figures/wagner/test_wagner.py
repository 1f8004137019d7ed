"""Wagner et al.'s tables and figures: the defined distributions, and arithmetic on records."""

from __future__ import annotations

import json
import math
import random
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks import profiles as benchmark  # noqa: E402
from benchmarks.chain.contestants import Entry  # noqa: E402
from benchmarks.chain.inputs import make_inputs  # noqa: E402
from benchmarks.verification.loops import Loop  # noqa: E402
from benchmarks.verification.memory import peak_bytes  # noqa: E402
from benchmarks.verification.methods import step_by_step  # noqa: E402
from benchmarks.verification.texts import next_gamma, text_of  # noqa: E402
from figures.shipped_pairs import prompts_of_text  # noqa: E402
from figures.table import Table  # noqa: E402
from figures.wagner import acceptance, profiles, scales, texts  # noqa: E402
from figures.wagner.acceptance import table_8  # noqa: E402
from figures.wagner.chains import figure_3, figure_4, figure_5, table_3  # noqa: E402
from figures.wagner.outputs import (  # noqa: E402
    SOFTMAX,
    distance,
    logits_at_contexts,
    outputs,
    weights,
)
from figures.wagner.scales import (  # noqa: E402
    ALL_ACCEPTED,
    NOT_FINITE,
    POWERS,
    name_of,
    table_2,
    table_7,
)
from figures.wagner.texts import table_1, table_4, table_5, table_6  # noqa: E402
from otm.kernels.chain import sigmoid  # noqa: E402
from otm.models import load  # noqa: E402

CPU = torch.device("cpu")
PROMPTS, TOKENS = 6, 8
MEASURED = (table_1, table_3, table_4, table_5, table_6, figure_3, figure_4, figure_5)


@pytest.fixture(scope="module")
def logits() -> dict[str, Any]:
    """Logits of the target and of the smallest draft model at a few contexts, V = 256."""
    return logits_at_contexts(("target", "small"), PROMPTS, TOKENS, 0)[0]


@pytest.fixture(scope="module")
def table_of_all_pairs() -> Table:
    return table_7(PROMPTS, TOKENS)


def softmax(scores: list[float]) -> list[float]:
    terms = [math.exp(z - max(scores)) for z in scores]
    return [term / math.fsum(terms) for term in terms]


def by_definition(
    target: list[float], draft: list[float], scale: float
) -> tuple[float, list[float]]:
    """Compute acceptance and distribution of section 3.2.2, equations 5 to 7, token by token."""
    t, d = (
        [1 / (1 + math.exp(-(z + scale) / (2 * scale))) for z in scores]
        for scores in (target, draft)
    )
    drawn = softmax(draft)
    passed = [p * min(1.0, a / b) for p, a, b in zip(drawn, t, d, strict=True)]
    excess = [max(a - b, 0.0) for a, b in zip(t, d, strict=True)]
    rejected = math.fsum(p - a for p, a in zip(drawn, passed, strict=True))
    whole = math.fsum(excess)
    return 1 - rejected, [a + rejected * e / whole for a, e in zip(passed, excess, strict=True)]


@pytest.mark.parametrize("scale", [1.0, 10.0, 1000.0])
def test_output_laws_follow_their_definition(logits: dict[str, Any], scale: float) -> None:
    """Bug: α and β swapped, target and draft swapped, a residual that is not normalised."""
    drawn = weights(logits["small"], SOFTMAX, "float64")
    used = [weights(logits[name], scale, "float64") for name in ("target", "small")]
    found = outputs(drawn, *used)
    for context in range(0, PROMPTS * TOKENS, 9):
        rows = (logits[name][context].tolist() for name in ("target", "small"))
        accepted, law = by_definition(*rows, scale)
        assert found.accepted[context] == pytest.approx(accepted, abs=1e-12)
        np.testing.assert_allclose(found.token[context], law, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.token.sum(1), 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.after.sum(1), 1, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [10.0, 1e4])
def test_output_laws_are_those_of_the_kernels(logits: dict[str, Any], scale: float) -> None:
    """Bug: the figures show another variant than `otm.kernels.verify_sigmoid`."""
    drawn = weights(logits["small"], SOFTMAX, "float64")
    used = [weights(logits[name], scale, "float32") for name in ("target", "small")]
    found = outputs(drawn, *used)
    for context in range(0, PROMPTS * TOKENS, 9):
        rows = (torch.from_numpy(logits[name][context]) for name in ("target", "small"))
        law = sigmoid.output_distribution(*rows, (-scale, scale)).numpy()
        assert abs(found.token[context] - law).sum() / 2 < 1e-5


def test_large_scales_accept_everything(logits: dict[str, Any]) -> None:
    """Bug: the limit is not the draft's distance; acceptance falls as scales grow."""
    exact, drawn = (weights(logits[name], SOFTMAX, "float64") for name in ("target", "small"))
    acceptance = []
    for scale in (10.0, 1e3, 1e5, 1e7):
        used = [weights(logits[name], scale, "float64") for name in ("target", "small")]
        found = outputs(drawn, *used)
        acceptance.append(found.accepted.mean())
        reach = 40 / scale  # a ratio of sigmoids is as close to 1 as logits are to each other
        assert (abs(distance(found.token, exact) - distance(drawn, exact)) <= reach).all()
    assert all(later > earlier for earlier, later in pairwise(acceptance))
    assert acceptance[-1] == pytest.approx(1, abs=1e-6)


def test_softmax_loses_nothing(table_of_all_pairs: Table, logits: dict[str, Any]) -> None:
    """Bug: the row of the exact method is not the maximal coupling."""
    exact, drawn = (weights(logits[name], SOFTMAX, "float64") for name in ("target", "small"))
    row = table_of_all_pairs.where(draft="small", scale=SOFTMAX, type="float32")
    assert row["acceptance"][0] == pytest.approx(np.minimum(exact, drawn).sum(1).mean(), abs=1e-6)
    rows = table_of_all_pairs.where(scale=SOFTMAX, type="float32")
    assert rows["TV"].max() < 1e-6
    assert rows["TV after"].max() < 1e-6


def test_half_precision_has_no_law_at_the_largest_scales(table_of_all_pairs: Table) -> None:
    """Bug: NaN passed on as a number; or a breakdown in float32, where the paper has none."""
    lost = table_of_all_pairs.where(state=NOT_FINITE)
    assert set(zip(lost["type"], lost["scale"], strict=True)) == {("float16", name_of(1e5))}
    assert len(lost.rows) == 3
    assert set(lost["TV"]) == {""}
    largest = torch.finfo(torch.float16).max
    assert 1e4 < largest < 1e5
    half = torch.tensor(1e5, dtype=torch.float16)
    assert ((half - -half) / (half - -half)).isnan()
    assert Table.from_csv(table_of_all_pairs.to_csv()) == table_of_all_pairs


def test_scales_hardly_matter(table_of_all_pairs: Table) -> None:
    """Bug: rows of another pair, type or scale; every row lies within its interval's ends."""
    for draft in ("small", "medium", "large"):
        found = table_of_all_pairs.where(draft=draft, type="float32", state="finite")
        limit = found.where(scale=ALL_ACCEPTED)
        for power in POWERS:
            row = found.where(scale=name_of(10.0**power))
            assert abs(row["TV"] - limit["TV"])[0] < 10.0 ** (1 - power) * 0.02 + 1e-5
            assert row["acceptance low"][0] <= row["acceptance"][0] <= row["acceptance high"][0]


def test_table_2_is_one_pair_of_table_7(table_of_all_pairs: Table) -> None:
    """Bug: the two tables take other contexts."""
    assert table_2(PROMPTS, TOKENS) == table_of_all_pairs.where(draft=scales.DRAFT)


def test_baseline_and_exact_accept_alike() -> None:
    """Bug: chains, uniforms or positions that differ between the methods; a rate above one."""
    prompts, windows = 4, 2
    table = table_8(prompts, windows)
    assert set(table["gamma"]) == {3, 5, 10, 15}
    for draft in ("small", "medium", "large"):
        for gamma in acceptance.GAMMAS:
            of = {m: table.where(draft=draft, gamma=gamma, method=m) for m in acceptance.METHODS}
            assert of["baseline"].rows[0][3:] == of["exact"].rows[0][3:]
            assert of["sigmoid"]["rate"][0] > of["exact"]["rate"][0]
            assert of["sigmoid"]["TV"][0] > 0.05
    rates = table.where(draft="small", method="exact")["rate"]
    assert all(later < earlier for earlier, later in pairwise(rates)), "a longer chain breaks"


def test_acceptance_rates_are_expectations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a coin for the wrong draft.  Given the chains, E[accepted] = Σ_i Π_{j ≤ i} a_j."""
    seen: list[tuple[Any, Any, Any]] = []
    chains = acceptance._chains
    monkeypatch.setattr(
        acceptance, "_chains", lambda *given: seen.append(chains(*given)) or seen[-1]
    )
    table = table_8(4, 2)
    for name, (tokens, wanted, offered) in zip(acceptance.DRAFTS, seen, strict=True):
        laws = [
            np.exp(z - np.logaddexp.reduce(z, axis=2, keepdims=True)) for z in (wanted, offered)
        ]
        at = [np.take_along_axis(x[:, :15], tokens[..., None], 2)[..., 0] for x in laws]
        through = np.minimum(1, at[0] / at[1]).cumprod(1)
        for gamma in acceptance.GAMMAS:
            expected = through[:, :gamma].sum(1)
            # Var = Σ_i (2i − 1) P(N ≥ i) − E², by chain; a mean of COINS draws of each
            second = ((2 * np.arange(1, gamma + 1) - 1) * through[:, :gamma]).sum(1)
            error = math.sqrt((second - expected**2).sum() / acceptance.COINS) / len(tokens)
            found = table.where(draft=name, gamma=gamma, method="exact")["rate"][0] * gamma
            assert abs(found - expected.mean()) < 5 * error + 1e-12


def test_reduction_of_totals() -> None:
    """Bug: a mean of ratios in place of a ratio of sums; n for n − 1; the sign."""
    found = profiles.reduction([1.0, 5.0], [2.0, 4.0])
    # ratio 1, residuals −1 and +1, error √(2 · 2) / 6, t at 0.975 with one degree 12.7062
    assert found.mean == pytest.approx(0)
    assert found.high == pytest.approx(100 * 12.706204736 * 2 / 6, rel=1e-9)
    assert found.low == pytest.approx(-found.high)
    assert profiles.reduction([3.0, 3.0], [6.0, 6.0]).mean == pytest.approx(50)


def hand_made(name: str, kind: str, factor: float) -> dict[str, Any]:
    """Make a record with numbers that NOBODY MEASURED: "exact" takes half the time."""
    speeds = {"baseline": 1.0, "exact": 0.5, "sigmoid": 0.25}
    chains = [
        {"model": model, "V": 1000, "gamma": gamma, "method": method, "s": factor * speed * gamma}
        | {"quartiles s": [0.5 * factor * speed * gamma, 2.0 * factor * speed * gamma]}
        | {"needed bytes": 4e6, "input bytes": 100 * gamma, "peak bytes": 50 * gamma}
        | {"moved bytes": None if kind == "cuda" and method != "baseline" else 8_000_000}
        for model in ("Whisper", "Llama2", "Qwen", "Gemma")
        for gamma in (4, 5)
        for method, speed in speeds.items()
    ]
    texts = [
        {"model": "Qwen", "V": 1000, "length": 9, "scale": 1e4, "method": method}
        | {"gammas": [5, 4, 5], "accepted": [3, 4, 0], "s": [factor * speed * x for x in (1, 2, 3)]}
        | {"text s": [2 * factor * speed, 4 * factor * speed]}
        for method, speed in speeds.items()
    ]
    loops = [
        {"pair": "a pair", "V": 256, "method": method, "tokens": 10, "scale": 1e4, "steps": 5}
        | {"draft s": 1.0, "target s": 2.0, "verification s": factor * speed}
        | {"text s": [3 + factor * speed] * 2}
        for method, speed in speeds.items()
    ]
    return {"device": name, "kind": kind, "memory counted by": "counting"} | {
        "copy bytes/s": 1e7,
        "chains": chains,
        "texts": texts,
        "loops": loops,
    }


ONE, OTHER = hand_made("GPU one", "cuda", 1.0), hand_made("GPU two", "cuda", 10.0)
PROCESSOR = hand_made("CPU", "cpu", 100.0)


def test_a_processor_is_shown_only_without_a_gpu() -> None:
    """Bug: times of a CPU in a table that is read as one of a GPU."""
    for module in MEASURED:
        assert set(module([PROCESSOR])["device"]) == {"CPU"}
        assert set(module([PROCESSOR, ONE])["device"]) == {"GPU one"}


def test_table_4_shows_the_second_device() -> None:
    """Bug: the first device shown twice without saying so."""
    alone = table_4([PROCESSOR, ONE])
    assert set(alone["which"]) == {texts.ONLY}
    both = table_4([PROCESSOR, ONE, OTHER])
    assert set(both["which"]) == {texts.SECOND}
    assert set(both["device"]) == {"GPU two"}
    assert set(table_1([PROCESSOR, ONE, OTHER])["device"]) == {"GPU one"}


def test_arithmetic_of_the_tables() -> None:
    """Bug: reductions of another method; γ for tokens; milliseconds for seconds."""
    one = table_1([ONE]).where(method="exact")
    assert one["reduction"][0] == pytest.approx(50)
    assert one["s"][0] == pytest.approx(3)
    assert one["accepted"][0] == pytest.approx(7 / 14)
    step = table_6([ONE]).where(method="sigmoid")
    assert step["s"][0] == pytest.approx(0.5)
    assert step["sd"][0] == pytest.approx(0.25)
    assert step["reduction"][0] == pytest.approx(75)
    loop = table_5([ONE]).where(method="exact")
    assert loop["reduction"][0] == pytest.approx(100 * (1 - 3.5 / 4))
    assert loop["tokens"][0] == 20


def test_bandwidth_is_bytes_over_time() -> None:
    """Bug: bytes needed in place of those moved where these are known, or the other way."""
    table = table_3([ONE])
    assert set(table["V"]) == {1000}
    baseline, exact = (table.where(model="Qwen", method=m) for m in ("baseline", "exact"))
    assert baseline["GB/s"][0] == pytest.approx(8e-3 / 5)
    assert baseline["of copy"][0] == pytest.approx(8e6 / 5 / 1e7)
    assert exact["moved bytes"][0] == ""
    assert exact["GB/s"][0] == pytest.approx(4e-3 / 2.5)
    assert exact["paper GB/s"][0] == "31.65 (7B)"
    assert "–" in [text.get_text() for text in table_3.draw(table).texts], "moved by a kernel"


def test_curves_have_their_models() -> None:
    """Bug: times where memory is asked for, or the models of another figure."""
    times, memory, speech = (m([ONE]) for m in (figure_3, figure_4, figure_5))
    assert set(memory["model"]) | set(speech["model"]) == set(times["model"])
    found = times.where(model="Gemma", method="exact", gamma=4)
    assert (found["low"][0], found["s"][0], found["high"][0]) == (1.0, 2.0, 4.0)
    assert speech.where(method="exact", gamma=4)["peak bytes"][0] == 200


TINY = benchmark.QUICK._replace(
    models=tuple(m._replace(vocabulary=300, length=8) for m in benchmark.MODELS),
    gammas=range(4, 6),
    rounds=2,
    layers=1,
    tokens=5,
)


def test_the_benchmark_writes_what_the_figures_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a record lacks an entry that a figure reads; a γ that the heuristic does not give."""
    monkeypatch.setattr(benchmark, "QUICK", TINY)
    options = ["--quick", "--device", "cpu", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["profiles", *options])
    benchmark.main()
    record = json.loads((tmp_path / "profiles-cpu.json").read_text(encoding="utf-8"))
    assert record["gate"]["passed"] == ["baseline", "exact"]
    for module in MEASURED:
        table = module([record])
        assert Table.from_csv(table.to_csv()) == table
    for row in record["texts"]:
        assert sum(row["accepted"]) + len(row["s"]) <= TINY.texts * 8
    assert {row["gamma"] for row in record["chains"]} == {4, 5}
    assert all(row["peak bytes"] > 0 < row["moved bytes"] for row in record["chains"])


def test_texts_follow_the_heuristic() -> None:
    """Bug: γ counted from another step, or a text that is longer than it may be."""
    assert [next_gamma(5, 5, 5), next_gamma(5, 4, 5), next_gamma(1, 0, 1)] == [7, 4, 1]

    def accept_all(inputs: Any) -> Any:
        return None, torch.tensor([inputs.tokens.shape[1]])

    pool = make_inputs((1, 31, 50), torch.float32, "typical", logits=True, device=CPU)
    steps = text_of(Entry(accept_all), pool, CPU, 40, random.Random(0))
    assert [gamma for gamma, _, _ in steps] == [5, 7, 9, 11, 3]


def test_loops_accept_the_drafts_of_the_target_itself() -> None:
    """Bug: sessions out of step with the text, so that drafts are judged at other places."""
    target, tokens = load("small"), 30
    torch.manual_seed(0)
    loop = Loop(Entry(step_by_step), CPU)
    (prompt,) = prompts_of_text(1, 16)
    loop.run(target, target, prompt, tokens)
    assert loop.steps == 4  # 6, 8, 10 tokens and the 6 that are left
    assert loop.text[:16] == prompt
    assert len(loop.text) == 16 + tokens


def test_peak_memory_is_counted() -> None:
    """Bug: a sum of all allocations in place of the peak, or the peak without the result."""

    def call() -> Any:
        first = torch.ones(2**18)  # 1 MiB, freed below
        second = first + 1
        del first
        return second + 1

    assert 0 <= peak_bytes(call, CPU) - 2 * 2**20 < 100  # a number takes some bytes too
