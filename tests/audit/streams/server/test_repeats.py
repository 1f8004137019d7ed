"""Texts that repeat earlier ones: a mean of at most 1 for right servers, and copies are found."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

pytest.importorskip("httpx2")

from otm.audit.streams.server.answers import Completion
from otm.audit.streams.server.distributions.lists import probs_from_list
from otm.audit.streams.server.distributions.token_probs import TokenProbs
from otm.audit.streams.server.evidence.earlier_answers import Copies
from otm.decoding import SamplingParameters
from tests.audit.streams.server.servers import Place, V, asked, audit, serve


def row_of(probs: list[float]) -> TokenProbs:
    entries = {f"token_id:{i}": math.log(p) for i, p in enumerate(probs)}
    law = probs_from_list(entries, 5, SamplingParameters(), "token_id:0")
    assert law is not None
    return law


@pytest.mark.parametrize("counts", [True, False])
def test_the_mean_of_the_e_value_is_at_most_one(counts: bool) -> None:
    """By enumeration of four texts of two tokens.  Bugs: a factor that is not of mean 1.

    Also where the second token of a text does not count.
    """
    first, second = row_of([0.7, 0.3]), row_of([0.5, 0.25, 0.25])
    texts = list(itertools.product(range(2), range(3)))
    probs = {(x, y): (0.7, 0.3)[x] * (0.5, 0.25, 0.25)[y] for x, y in texts}
    mean = 0.0
    for outcome in itertools.product(texts, repeat=4):
        copies = Copies(0.0)
        for text in outcome:
            tokens, rows = tuple(f"token_id:{token}" for token in text), (first, second)
            copies.add(0, Completion(tokens, ({}, {}), rows if counts else (first, None)))
        mean += math.exp(copies.evidence.log_e_value) * math.prod(probs[text] for text in outcome)
    assert mean == pytest.approx(1) if counts else 0.1 < mean < 1


def test_a_relative_error_of_probabilities_is_paid_for() -> None:
    """Bug: probabilities that are 1 % too low, of a hundred tokens, raise an alarm."""
    row = row_of([0.99, 0.01])
    rng = np.random.default_rng(1)
    copies = Copies(1e-3)
    for _ in range(2000):
        tokens = tuple(f"token_id:{int(u > 0.999)}" for u in rng.random(10))
        copies.add(0, Completion(tokens, ({},) * 10, (row,) * 10))
    assert copies.evidence.log_e_value < 3
    careless = Copies(0.0)
    for _ in range(2000):
        tokens = tuple(f"token_id:{int(u > 0.999)}" for u in rng.random(10))
        careless.add(0, Completion(tokens, ({},) * 10, (row,) * 10))
    assert careless.evidence.log_e_value > 20


def thrice(at: Place) -> int:
    """Draw by a stream that three requests share."""
    rng = np.random.default_rng([at.number // 3, len(at.text)])
    return int(rng.choice(V, p=asked(at.body)(at.logits)))


def one_seed(at: Place) -> int:
    rng = np.random.default_rng([7, len(at.text)])
    return int(rng.choice(V, p=asked(at.body)(at.logits)))


def sometimes(at: Place) -> int:
    """Answer one request of twenty from a cache."""
    number = at.number - at.number % 8 if at.number % 20 == 7 else at.number
    rng = np.random.default_rng([number, len(at.text)])
    return int(rng.choice(V, p=asked(at.body)(at.logits)))


def pool(at: Place) -> int:
    """Give each of 24 texts of a prompt in turn; no two of 23 in a row are the same."""
    rng = np.random.default_rng([at.number % 24, len(at.text)])
    return int(rng.choice(V, p=asked(at.body)(at.logits)))


@pytest.mark.parametrize("sample", [thrice, one_seed, sometimes, pool])
def test_repeated_texts_are_found(sample: object) -> None:
    """Bug: each text three times in a row was lossless, as each by itself is right."""
    report = audit(serve(sample), concurrency=(8,), prompts=["a", "b"])  # type: ignore[arg-type]
    assert report.verdict == "not lossless"
    assert report.repeats is not None
    assert report.repeats.repeated > 3 * report.repeats.expected
    assert any(reason.startswith("repeated texts") for reason in report.reasons)


def test_texts_that_are_likely_come_again() -> None:
    """The control: short texts of little entropy repeat each other, of a right server too."""
    report = audit(serve(scale=6.0), tv=0.2, max_tokens=2)
    assert report.lossless
    assert report.repeats is not None
    assert report.repeats.repeated > report.repeats.texts / 2
    assert report.repeats.log10_e_value < 1
