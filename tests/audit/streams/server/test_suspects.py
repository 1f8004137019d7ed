"""What a deviation looks like is named, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("httpx2")

from otm.decoding import SamplingParameters
from tests.audit.streams.server.servers import Place, V, asked, audit, right, serve


def greedy(at: Place) -> int:
    return int(at.logits.argmax())


def seeded(at: Place) -> int:
    """Sample each text with the same seed."""
    rng = np.random.default_rng([7, len(at.text)])
    return int(rng.choice(V, p=asked(at.body)(at.logits)))


def with_parameters(**values: float) -> Callable[[Place], int]:
    """Sample with other parameters than asked for."""

    def sample(at: Place) -> int:
        probs = asked({**at.body, **values})(at.logits)
        return int(at.rng.choice(V, p=probs))

    return sample


def penalty(at: Place) -> int:
    """Take 3 from the logits of tokens of the text so far."""
    logits = at.logits.copy()
    logits[at.text] -= 3
    return int(at.rng.choice(V, p=asked(at.body)(logits)))


CAUSES: dict[str, tuple[Callable[[Place], int], dict[str, float]]] = {
    "no sampling": (greedy, {}),
    "repeated texts: ": (seeded, {}),
    "another temperature, about 0.7 times": (with_parameters(temperature=0.7), {}),
    "another temperature, about 1.25 times": (with_parameters(temperature=1.25), {}),
    "top-p of about 0.8": (with_parameters(top_p=0.8), {}),
    "top-k of about 5": (with_parameters(top_k=5), {}),
    "a penalty for tokens": (penalty, {}),
    "a parameter without effect": (with_parameters(top_k=0), {"top_k": 5}),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_the_cause_is_named(cause: str) -> None:
    """Bug: "not lossless" of a server that does not sample at all, without a word of it."""
    sample, given = CAUSES[cause]
    sampling = [SamplingParameters(top_k=int(given["top_k"]))] if given else [SamplingParameters()]
    # the same tokens are likely at all places, so that they come again in a text
    memory = 0 if cause.startswith("a penalty") else 2
    report = audit(serve(sample, memory=memory), sampling=sampling, logprobs=30)
    assert report.verdict == "not lossless"
    assert report.reasons[0].startswith(cause)
    assert f"  - {cause}" in str(report)


def test_a_server_that_gives_the_same_text_says_so() -> None:
    """Also over all prompts and settings, as many as the audit has by itself."""
    report = audit(serve(greedy), sampling=[SamplingParameters(), SamplingParameters(0.7)])
    assert report.verdict == "not lossless"
    assert len(report.reasons) == 1
    assert "greedy decoding" in report.reasons[0]


def test_no_suspect_of_a_right_server() -> None:
    assert audit(serve(right), requests=64).verdict == "undecided"
    report = audit(serve(right), tv=0.3)
    assert report.lossless
    assert report.reasons == ()
