"""Figures beyond the papers: orders that are theorems, sums that must agree."""

from __future__ import annotations

import numpy as np
import pytest

import otm
from figures.beyond import (
    acceptance_by_rule,
    gain_by_ratio,
    lossy_frontier,
    lossy_texts,
    solve_time,
    two_bars,
)
from figures.rules import K_SEQ, OPTIMUM, acceptance
from figures.shipped_pairs import (
    DRAFTS,
    logits_at,
    prompts_of_text,
    shipped_probs,
    texts_of_target,
)
from figures.table import Table
from otm._core.probs.distribution import total_variation
from otm.coupling import KSeq
from otm.optimum.cut import optimal_cap
from otm.optimum.lenience import acceptance_at_distance
from otm.problem import Problem

PROMPTS = 3


@pytest.fixture(scope="module")
def by_rule() -> Table:
    return acceptance_by_rule.acceptance_by_rule(PROMPTS, every=40)


@pytest.fixture(scope="module")
def frontier() -> Table:
    return lossy_frontier.lossy_frontier(PROMPTS, every=40)


@pytest.fixture(scope="module")
def by_ratio() -> Table:
    return gain_by_ratio.gain_by_ratio(PROMPTS, every=20)


def problems(pair: str, tokens: int, every: int, k: int) -> list[Problem]:
    """Problems at the contexts of a figure."""
    laws, _ = shipped_probs((pair, "target"), prompts=PROMPTS, tokens=tokens, every=every)
    return [
        Problem(draft, target, k) for draft, target in zip(laws[pair], laws["target"], strict=True)
    ]


def test_no_rule_for_iid_drafts_is_above_the_optimum(by_rule: Table) -> None:
    """Bug: a rule that is not lossless, an optimum of other contexts, or a wrong sign."""
    for drafts in ("i.i.d.", "other"):
        rows = by_rule.where(drafts=drafts)
        best = {
            (row[0], row[3]): row[4] for row in by_rule.where(rule=acceptance_by_rule.OPTIMUM).rows
        }
        above = np.array([best[row[0], row[3]] for row in rows.rows])
        np.testing.assert_allclose(rows["below"], above - rows["acceptance"], rtol=0, atol=1e-12)
        if drafts == "i.i.d.":
            assert (rows["below"] >= -1e-12).all()


def test_rules_are_those_of_another_implementation(by_rule: Table) -> None:
    """Bug: rules, numbers of drafts or pairs that are swapped."""
    for pair in DRAFTS:
        for k in (1, 3, 8):
            at = problems(pair, acceptance_by_rule.TOKENS, 40, k)
            for name, known in ((acceptance_by_rule.OPTIMUM, OPTIMUM), ("k-Seq", K_SEQ)):
                wanted = np.mean([acceptance(known, p.draft, p.target, k) for p in at])
                [found] = by_rule.where(pair=pair, k=k, rule=name)["acceptance"]
                assert found == pytest.approx(wanted, abs=1e-9), (pair, k, name)


def test_one_draft_leaves_no_choice(by_rule: Table) -> None:
    """Bug: k off by one; what is drawn without replacement is one draft like any other."""
    at_one = by_rule.where(k=1)
    exact = {"k-Seq", "importance selection", "recursive rejection", "greedy"}
    exact |= {acceptance_by_rule.WITHOUT, acceptance_by_rule.BEST_WITHOUT}
    for row in at_one.rows:
        if row[2] in exact:
            assert row[7] == pytest.approx(0, abs=1e-9), row[2]
    assert not at_one.where(rule="SpecHub").rows


def test_two_greedy_drafts_are_spec_hub_s_and_drafts_do_not_hurt(by_rule: Table) -> None:
    """Bug: SpecHub at another k, or drafts without replacement below their own best rule."""
    for pair in DRAFTS:
        two = by_rule.where(pair=pair, k=2)
        hub, greedy = (two.where(rule=name)["acceptance"][0] for name in ("SpecHub", "greedy"))
        assert hub == pytest.approx(greedy, abs=1e-9)
        best = two.where(rule=acceptance_by_rule.BEST_WITHOUT)["acceptance"][0]
        assert best >= two.where(rule=acceptance_by_rule.WITHOUT)["acceptance"][0] - 1e-9


def test_no_lossy_rule_is_above_the_frontier(frontier: Table) -> None:
    """Bug: an acceptance that counts what is not a draft, or a distance that is too small."""
    lossy_settings = [row for row in frontier.rows if row[1] != lossy_frontier.FRONTIER]
    cells = [(row[1], row[2], row[3], row[9]) for row in lossy_settings]
    assert {name for name, *_ in cells} == {*lossy_frontier.FAMILIES, lossy_frontier.SIGMOIDS}
    for name, setting, accepted, highest in cells:
        assert float(accepted) <= float(highest) + 1e-9, (name, setting)


def test_no_lossy_rule_is_above_the_frontier_of_any_context() -> None:
    """Bug: a violation in one context that the mean over contexts hides."""
    for k in lossy_frontier.NUMBERS:
        for problem in problems(lossy_frontier.PAIR, 4, 2, k):
            for name, knob in lossy_frontier.FAMILIES.items():
                for setting in knob.settings[::2]:
                    accepted, law = knob.outcome(problem, setting)
                    distance = total_variation(law, problem.target)
                    best = acceptance_at_distance(problem, distance)
                    assert accepted <= best + 1e-9, (k, name, setting)


def test_points_that_must_lie_on_the_frontier_do(frontier: Table) -> None:
    """Bug: a frontier that is too high, so that nothing could ever violate it."""
    for k in lossy_frontier.NUMBERS:
        best = frontier.where(k=k, rule="lenience, optimal")
        np.testing.assert_allclose(
            best["acceptance"].astype(float), best["highest"].astype(float), rtol=0, atol=1e-8
        )
        for name, setting in (
            ("lenience, paper's residual", 1.0),
            ("temperature of the target", 1.0),
        ):
            [row] = frontier.where(k=k, rule=name, setting=setting).rows
            assert row[6] == pytest.approx(0, abs=1e-9)
            assert row[3] == pytest.approx(row[9], abs=1e-9)  # fmt: skip


def test_lossy_texts() -> None:
    """Bug: a ratio of other tokens than those of the text, or of another rule's distribution."""
    prompts, length = 3, 2
    table = lossy_texts.lossy_texts(prompts, length)
    texts = texts_of_target(prompts_of_text(prompts), length)
    draft, target = (logits_at(name, texts, 64) for name in (lossy_texts.PAIR, "target"))
    p, q = (np.exp(x - x.max(-1, keepdims=True)) for x in (draft, target))
    p, q = (x / x.sum(-1, keepdims=True) for x in (p, q))
    at = np.take_along_axis((0.5 * p + 0.5 * q) / q, texts[:, 64:, None], axis=2)[..., 0]
    [row] = table.where(rule="ensemble", setting=0.5).records()
    assert row["tv_text"] == pytest.approx(np.maximum(0, 1 - at.prod(1)).mean(), abs=1e-9)
    assert row["tv_token"] == pytest.approx(np.abs(p - q).sum(-1).mean() / 4, abs=1e-9)
    for lossless in (("ensemble", 1.0), ("Cactus", 0.0), (lossy_texts.LENIENCE, 1.0)):
        [row] = table.where(rule=lossless[0], setting=lossless[1]).records()
        assert row["tv_text"] == row["tv_token"] == pytest.approx(0, abs=1e-9)


def test_sigmoids_are_those_of_the_kernel(frontier: Table) -> None:
    """Bug: division by a scale, another residual, or log-probabilities in place of logits."""
    torch = pytest.importorskip("torch")
    from otm.kernels import sigmoid_distance

    names = "target", lossy_frontier.PAIR
    texts = texts_of_target(prompts_of_text(PROMPTS), lossy_frontier.TOKENS)
    firsts = [torch.tensor(logits_at(name, texts, 64)[:, 0]).float() for name in names]
    for scale in lossy_frontier.SCALES:
        [found] = frontier.where(rule=lossy_frontier.SIGMOIDS, setting=scale)["tv"]
        expected = [sigmoid_distance(*rows, (-scale, scale)) for rows in zip(*firsts, strict=True)]
        assert float(found) == pytest.approx(np.mean(expected), abs=1e-5)


def test_bins_of_the_ratio_add_up(by_ratio: Table) -> None:
    """Bug: tokens beyond the last edge left out, or counted twice."""
    for k in gain_by_ratio.NUMBERS:
        at = problems(gain_by_ratio.PAIR, gain_by_ratio.TOKENS, 20, k)
        sums = {
            name: by_ratio.where(k=k, quantity=name)["mean"].sum()
            for name in (gain_by_ratio.TARGET, gain_by_ratio.OPTIMUM, gain_by_ratio.K_SEQ)
        }
        assert sums[gain_by_ratio.TARGET] == pytest.approx(1, abs=1e-12)
        for name, known in ((gain_by_ratio.OPTIMUM, OPTIMUM), (gain_by_ratio.K_SEQ, K_SEQ)):
            wanted = np.mean([acceptance(known, p.draft, p.target, k) for p in at])
            assert sums[name] == pytest.approx(wanted, abs=1e-9)


def test_accepted_masses_are_caps_and_the_gain_is_above_k_seq_s_factor() -> None:
    """Bug: a bin that is one off, or masses that are not min(q, c p) of Theorem 4.2.

    The bins are found token by token.
    """
    edges = gain_by_ratio.EDGES
    for k in gain_by_ratio.NUMBERS:
        for problem in problems(gain_by_ratio.PAIR, 3, 1, k):
            found = gain_by_ratio.masses_by_bin(problem)
            factors = {
                gain_by_ratio.OPTIMUM: float(optimal_cap(problem)),
                gain_by_ratio.K_SEQ: float(KSeq(problem).rho),
            }
            for name, factor in factors.items():
                wanted = np.zeros(edges.size - 1)
                for p, q in zip(problem.draft, problem.target, strict=True):
                    inner = sum(q >= p * 2.0**edge for edge in edges[1:-1])
                    wanted[inner] += min(q, factor * p)
                np.testing.assert_allclose(found[name], wanted, rtol=0, atol=1e-8)
            gain = found[gain_by_ratio.OPTIMUM] - found[gain_by_ratio.K_SEQ]
            below = edges[1:] <= np.log2(factors[gain_by_ratio.K_SEQ])
            assert (gain >= -1e-8).all()
            assert gain[below] == pytest.approx(0, abs=1e-8)


def test_solve_times_are_those_of_the_record() -> None:
    """Bug: a solve that ran out of time drawn as one that succeeded, or the wrong one marked."""
    results = [
        {"method": "HiGHS", "k": 2, "n": 10, "outcome": "solved", "seconds": 0.5},
        {"method": "HiGHS", "k": 2, "n": 20, "outcome": "out of time"},
        {"method": "closed form", "k": 2, "n": 10, "outcome": "solved", "seconds": 0.25},
    ]
    largest = {"2": {"HiGHS": 10, "closed form": 10}}
    content = {
        "time limit": 60,
        "largest solved in time": largest,
        "results": results,
        "cpu": "Some Processor",
        "cores": 2,
    }
    table = solve_time.solve_time([content])
    assert table.where(n=10)["largest"].tolist() == ["yes", "yes"]
    assert table.where(n=20).rows[0][3:6] == ("", "out of time", "no")
    assert table.where(outcome="solved")["seconds"].astype(float).tolist() == [0.5, 0.25]
    assert set(table["machine"]) == {"2 cores of Some Processor"}


def test_two_bars_add_up_to_the_target() -> None:
    """Catches a bar of another rule, or of the draft: the filled parts sum to the optimum."""
    for k in two_bars.NUMBERS:
        rows = [row for row in two_bars.two_bars().records() if row["k"] == k]
        accepted, residual = (
            [float(row[name]) for row in rows] for name in ("accepted", "residual")
        )
        assert sum(accepted) == pytest.approx(otm.alpha(two_bars.DRAFT, two_bars.TARGET, k))
        assert [*map(sum, zip(accepted, residual, strict=True))] == pytest.approx(two_bars.TARGET)
