"""The bound of a report: what no memoryless lossless verifier exceeds, from texts of the target."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import otm
from otm._core.means import Prompts
from otm.gain import Settings
from otm.gain.reports.pairs import measure_pair
from otm.gain.reports.text_bound import bound_along_text, tangents

# Distributions of the next token after each last token, of texts over two tokens that follow a 0
DRAFT = np.array([[0.75, 0.25], [0.375, 0.625]])
TARGET = np.array([[0.25, 0.75], [0.5, 0.5]])
KS, GAMMAS = (1, 2, 4), (1, 2, 3)

Path = tuple[int, ...]


def paths(start: int, length: int, laws: np.ndarray) -> Iterator[tuple[Path, float]]:
    """All continuations of a token with their probabilities."""
    for path in itertools.product((0, 1), repeat=length):
        before = (start, *path[:-1])
        yield path, float(np.prod(laws[before, path]))


def bounds_of(texts: tuple[Path, ...]) -> np.ndarray:
    """Compute the bound of the texts of some prompts, one each: [K, gammas]."""
    settings = Settings(KS, ("optimal",), lossy_settings=())
    before = [token for text in texts for token in (0, *text[:-1])]
    drawn = [token for text in texts for token in text]
    rows = [measure_pair(DRAFT[b], TARGET[b], settings, 1.0) for b in before]
    measured = {name: np.array([[row[name]] for row in rows]) for name in ("optimum", "above")}
    measured["ratio"] = (DRAFT[before, drawn] / TARGET[before, drawn])[:, None]
    prompts = Prompts(np.repeat(np.arange(len(texts)), [len(text) for text in texts]))
    sums = bound_along_text(measured, KS, GAMMAS, prompts)
    return np.asarray(sums.sum(axis=0)[0] / len(drawn))


def exact(lengths: tuple[int, ...]) -> np.ndarray:
    """Sum over depths of the mean of α_K(D_i, T_i) over positions with i tokens left, likewise."""
    alphas = np.zeros((len(KS), len(GAMMAS)))
    for (j, k), (i, depth) in itertools.product(enumerate(KS), enumerate(GAMMAS)):
        values = []
        for place in [place for length in lengths for place in range(length - depth + 1)]:
            value = 0.0
            for text, probability in paths(0, place, TARGET):
                last = (0, *text)[-1]
                laws = ([p for _, p in paths(last, depth, each)] for each in (DRAFT, TARGET))
                value += probability * float(otm.alpha(*laws, k))
            values.append(value)
        alphas[j, i] = np.mean(values)
    return np.asarray(1 + alphas.cumsum(axis=1))


def test_the_mean_over_all_texts_is_a_bound_and_exact_for_one_chain() -> None:
    """Catches ratios of other tokens, wrong means, and parts chosen where they are used.

    The last would give a mean below the optimum for two and four chains.
    """
    mean = np.zeros((len(KS), len(GAMMAS)))
    for (one, p), (other, q) in itertools.product(paths(0, 3, TARGET), repeat=2):
        mean += p * q * bounds_of((one, other))
    least = exact((3, 3))
    assert mean[0] == pytest.approx(least[0], abs=1e-12)
    assert mean[:, 0] == pytest.approx(least[:, 0], abs=1e-12)  # γ = 1: α_K itself
    assert (mean[1:, 1:] > least[1:, 1:]).all()
    assert (mean - least).max() < 0.08


def test_a_depth_that_one_half_of_the_prompts_does_not_reach_has_no_bound() -> None:
    """Catches a part that no text has chosen."""
    found = bounds_of(((0, 1, 1), (1, 0)))
    assert np.isnan(found[:, 2]).all()
    assert np.isfinite(found[:, :2]).all()


@pytest.mark.parametrize("k", [1, 2, 5])
def test_tangents_lie_above_and_touch(k: int) -> None:
    """Catches a height of another tangent."""
    d, points = np.array([0.0, 0.3, 1.0]), np.linspace(0, 1, 101)
    slope, height = (each[:, -1] for each in tangents(d, k))  # at the whole of d
    above = slope[:, None] * points + height[:, None]
    assert (above >= 1 - (1 - points) ** k - 1e-12).all()
    assert slope * d + height == pytest.approx(1 - (1 - d) ** k)


def test_a_draft_that_never_gives_the_token_counts_for_nothing() -> None:
    """Catches 0 · ∞: a path with a token that is never drafted, after one that is always."""
    ratios = np.array([[1e300], [1e300], [0.0], [0.0], [1e300], [1e300]])
    half = np.full((6, 1, 1), 0.5)
    prompts = Prompts(np.repeat([0, 1], 3))
    longer = bound_along_text(
        {"ratio": ratios, "optimum": half, "above": half}, (1,), (9,), prompts
    )
    assert np.isnan(longer).all()  # longer than all texts together
    sums = bound_along_text(
        {"ratio": ratios, "optimum": half, "above": half}, (1,), (1, 2, 3), prompts
    )
    assert sums.sum(axis=0)[0, 0] / 6 == pytest.approx([1.5, 2.0, 2.0])
