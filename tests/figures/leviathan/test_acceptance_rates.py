"""Acceptance rates of our models: theorems about them, and the paper's numbers beside them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from figures.leviathan import acceptance
from figures.shipped_pairs import (
    DRAFTERS,
    DRAFTS,
    probs_at,
    prompts_of_text,
    shipped_probs,
    texts_of_target,
    training_text,
)
from figures.table import Table
from otm.coupling.lossy import ArgmaxLenientPlan, LenientPlan, distance_to_target
from otm.decoding import SamplingParameters
from otm.errors import InvalidParameterError
from otm.models import load
from otm.problem import Problem

PROMPTS, TOKENS = 6, 8
OURS = "ours"


@pytest.fixture(scope="module")
def rates() -> Table:
    return acceptance.table_3(PROMPTS, TOKENS)


@pytest.fixture(scope="module")
def lenient() -> Table:
    return acceptance.table_5(PROMPTS, TOKENS)


def ours(rates: Table, draft: str, temperature: int) -> float:
    [alpha] = [
        row[3]
        for row in rates.rows
        if str(row[0]).startswith(OURS)
        and str(row[1]).split(",")[0] == draft
        and row[2] == temperature
    ]
    return float(alpha)


def law_after(name: str, text: list[int], temperature: float) -> np.ndarray:
    """Return the distribution of the token after a text; a new session reads only this text."""
    logits = load(name).start(1).append(np.array([text]))[0, -1]
    return np.asarray(SamplingParameters(temperature=temperature)(np.asarray(logits)))


@pytest.mark.parametrize("temperature", acceptance.TEMPERATURES)
def test_rates_are_overlaps_of_laws_context_by_context(rates: Table, temperature: int) -> None:
    """Bug: distributions of two neighbouring positions compared, or another model's text."""
    prompts = prompts_of_text(PROMPTS)
    texts = texts_of_target(prompts, TOKENS, temperature=temperature, seed=acceptance.SEED)
    first = len(prompts[0])
    overlaps = [
        [
            sum(map(min, *(law_after(name, text, temperature) for name in ("small", "target"))))
            for end in range(first, first + TOKENS)
            for text in [row[:end].tolist()]
        ]
        for row in texts
    ]
    assert ours(rates, "small", temperature) == pytest.approx(np.mean(overlaps), abs=1e-6)


def test_greedy_rates_count_equal_choices(rates: Table) -> None:
    """Bug: distributions at T = 1 along greedy texts, or a draft that is sampled at T = 0."""
    texts = texts_of_target(prompts_of_text(PROMPTS), TOKENS, temperature=0)
    first = texts.shape[1] - TOKENS
    for draft in DRAFTERS:
        chosen = probs_at(draft, texts, first).argmax(axis=-1)
        agrees = np.mean(chosen == texts[:, first:])  # the target's own choices
        assert ours(rates, draft, 0) == pytest.approx(agrees, abs=1e-12), draft


def test_n_gram_laws_are_frequencies_of_the_training_text() -> None:
    """Bug: bigrams that look at the wrong byte, or that saw the held-out text.

    Smoothing moves the distribution of what follows a frequent byte by far less than 0.01.
    """
    text = np.frombuffer(training_text(), dtype=np.uint8)
    contexts = np.array([[*b"xx, t", 0]])  # the last token is only there to be predicted
    bigram = probs_at("bigram", contexts, 5)[0, 0]
    unigram = probs_at("unigram", contexts, 5)[0, 0]
    followers = text[1:][text[:-1] == ord("t")]
    wanted = np.bincount(followers, minlength=256) / followers.size
    np.testing.assert_allclose(bigram, wanted, rtol=0, atol=2e-3)
    np.testing.assert_allclose(
        unigram, np.bincount(text, minlength=256) / text.size, rtol=0, atol=1e-3
    )
    assert abs(bigram - unigram).sum() > 0.5


def test_prompts_do_not_overlap() -> None:
    """Bug: an interval over prompts that share most of their bytes."""
    prompts = [bytes(prompt) for prompt in prompts_of_text(376, 64)]
    assert len(set(prompts)) == 376
    with pytest.raises(InvalidParameterError, match="at most 376 prompts"):
        prompts_of_text(377, 64)


def test_contexts_are_thinned_within_their_texts() -> None:
    """Bug: every second context of all texts in a row, so that prompts do not match contexts."""
    whole = shipped_probs(("unigram", "small"), prompts=3, tokens=5)
    thin = shipped_probs(("unigram", "small"), prompts=3, tokens=5, every=2)
    kept = [text * 5 + place for text in range(3) for place in (0, 2, 4)]
    assert thin.prompts.tolist() == whole.prompts[kept].tolist()
    np.testing.assert_array_equal(thin.probs["small"], whole.probs["small"][kept])


def test_the_paper_s_numbers_stand_apart(rates: Table, lenient: Table) -> None:
    """Bug: columns of T = 0 and T = 1 swapped, or a printed number with our interval.

    The paper prints T5-small at l = 1 in both tables.
    """
    printed = [row for row in rates.rows if not str(row[0]).startswith(OURS)]
    assert len(printed) == 2 * 16
    assert all(row[4:] == ("", "", "") for row in printed)
    first = acceptance.RATES["T5-XXL, EnDe"]
    for name in ("unigram", "bigram", "T5-small", "T5-base"):
        assert acceptance.LENIENT_RATES[acceptance.SAMPLING, name][0] == first[name][1]
    assert acceptance.LENIENT_RATES[acceptance.GREEDY, "T5-small"][0] == first["T5-small"][0]
    assert len(lenient.where(source="paper, T5-XXL").rows) == 4 * 5


def test_no_lenience_is_the_plain_rate_and_costs_nothing(rates: Table, lenient: Table) -> None:
    """Bug: p/l for p·l, or a distance of the accepted mass in place of that of the output."""
    for draft in DRAFTERS:
        for decoding, temperature in ((acceptance.SAMPLING, 1), (acceptance.GREEDY, 0)):
            row = lenient.where(source=OURS, decoding=decoding, draft=draft, lenience=1)
            assert row["alpha"].astype(float) == pytest.approx(ours(rates, draft, temperature))
            assert row["tv"].astype(float) == pytest.approx(0, abs=1e-12)


def test_lenience_buys_acceptance_at_no_less_than_its_price(lenient: Table) -> None:
    """Bug: a rate that falls as l does, or a distance below what Theorem 7.3 allows."""
    for decoding in (acceptance.SAMPLING, acceptance.GREEDY):
        for draft in DRAFTERS:
            rows = lenient.where(source=OURS, decoding=decoding, draft=draft)
            assert rows["lenience"].tolist() == list(acceptance.LENIENCES)
            alpha, tv, least = (rows[name].astype(float) for name in ("alpha", "tv", "least_tv"))
            assert all(later >= earlier - 1e-12 for earlier, later in pairwise(alpha))
            np.testing.assert_allclose(least, alpha - alpha[0], rtol=0, atol=1e-12)
            assert (tv >= least - 1e-12).all()


@pytest.mark.parametrize("lenience", acceptance.LENIENCES)
def test_the_lenient_output_law_is_that_of_the_plan(lenience: float) -> None:
    """Bug: the residual of the strict rule, or one that is not scaled to what is rejected."""
    laws, _ = shipped_probs((*DRAFTS, "target"), prompts=2, tokens=3)
    for name in DRAFTS:
        accepted, output = acceptance.lenient_output(laws[name], laws["target"], lenience)
        for row, (draft, target) in enumerate(zip(laws[name], laws["target"], strict=True)):
            plan = LenientPlan(Problem(draft, target, 1), lenience, "paper")
            assert accepted[row].sum() == pytest.approx(float(plan.acceptance), abs=1e-9)
            distance = np.abs(output[row] - target).sum() / 2
            expected = distance_to_target(plan).total_variation
            assert distance == pytest.approx(float(expected), abs=1e-9)


@pytest.mark.parametrize("lenience", acceptance.LENIENCES)
def test_greedy_lenience_accepts_what_the_plan_does(lenience: float) -> None:
    """Bug: the inequality as the paper prints it, which accepts the unlikely tokens."""
    laws, _ = shipped_probs((*DRAFTS, "target"), prompts=2, tokens=6, temperature=1)
    for name in DRAFTS:
        accepted, changed = acceptance.greedy_lenience(laws[name], laws["target"], lenience)
        for row, (draft, target) in enumerate(zip(laws[name], laws["target"], strict=True)):
            greedy = np.eye(draft.size)[draft.argmax()]
            plan = ArgmaxLenientPlan(Problem(greedy, target, 1), lenience)
            assert accepted[row] == plan.acceptance
            likeliest = np.eye(draft.size)[target.argmax()]
            assert changed[row] == np.abs(plan.output_distribution() - likeliest).sum() / 2
