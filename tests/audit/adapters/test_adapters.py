"""Plain functions become verifiers, for all arguments and results."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm.audit import Instance, chain, loop, lossless, token_rule
from otm.audit.adapters.drafts import as_tokens, chain_probs, draw_chain
from otm.audit.instances import INSTANCES
from otm.coupling import KSeq
from otm.decoding import DeviceVerifier, speculative
from otm.errors import InvalidParameterError
from otm.kernels import verify_probs
from otm.models import TableModel
from otm.testing.sequences import output_distribution_of, sequence_distribution

FEW = [INSTANCES[name] for name in ("rows differ", "three tokens")]
PAIRS = [INSTANCES[name] for name in ("pairs", "pairs of three tokens")]


def by_uniforms(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    arrays = (target_probs, draft_probs, draft_tokens, uniforms)
    tokens, accepted, _ = verify_probs(*(a[None] for a in arrays), validate=False)
    return tokens[0], accepted[0]


def by_rng(target_probs: Any, draft_probs: Any, draft_tokens: Any, rng: Any) -> Any:
    return by_uniforms(target_probs, draft_probs, draft_tokens, rng.random(len(draft_tokens) + 2))


def by_seed(target_probs: Any, draft_probs: Any, draft_tokens: Any, *, seed: int) -> Any:
    return by_rng(target_probs, draft_probs, draft_tokens, np.random.default_rng(seed))


def by_generator(target_probs: Any, draft_probs: Any, draft_tokens: Any, generator: Any) -> Any:
    import torch

    uniforms = torch.rand(len(draft_tokens) + 2, generator=generator, dtype=torch.float64)
    return by_uniforms(target_probs, draft_probs, draft_tokens, uniforms.numpy())


@pytest.mark.parametrize("verify", [by_rng, by_seed, by_generator])
def test_randomness_by_other_names(verify: Any) -> None:
    """Bug: a generator that is the same in every run."""
    report = lossless(verify, instances=FEW, delta=0.2)
    assert report.lossless
    expected = {by_rng: "exact paths", by_generator: "breakpoints"}
    assert report.method == expected.get(verify, "Monte Carlo")


def test_tensors() -> None:
    """Bug: arrays that are not converted, or tensors that are not read back."""
    import torch

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        given = (target_probs, draft_probs, draft_tokens, uniforms)
        assert all(isinstance(tensor, torch.Tensor) for tensor in given)
        tokens, _ = by_uniforms(*(tensor.numpy() for tensor in given))
        return torch.as_tensor(tokens)

    report = lossless(chain(verify, convert=torch.as_tensor), instances=FEW[:1], examples=0)
    assert report.lossless
    assert report.method == "breakpoints"


def test_a_verifier_may_write_into_its_arrays() -> None:
    """Bug: distributions that are shared by runs, so that one run spoils the next."""

    def writes(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        result = by_uniforms(target_probs, draft_probs, draft_tokens, uniforms)
        target_probs[:], draft_probs[:] = 0, 0
        return result

    assert lossless(writes, instances=FEW, examples=0).lossless


def test_drafts_are_drawn_from_the_laws_that_are_shown() -> None:
    """Bug: the audit's own drafts are not honest."""
    instance = INSTANCES["two drafts"]
    law = output_distribution_of(lambda source: draw_chain(instance, source))
    assert law == sequence_distribution(instance.draft, instance.prompt, instance.gamma)
    for drafts in law:
        target, draft = chain_probs(instance, drafts, True)
        assert target.shape == (3, 3)
        assert draft.shape == (2, 3)
        for i in range(3):
            prefix = instance.prompt + drafts[:i]
            assert target[i].tolist() == instance.target.probs(prefix).tolist()
            assert i == 2 or draft[i].tolist() == instance.draft.probs(prefix).tolist()


def maximal(target_probs: Any, draft_probs: Any, drafts: Any, uniforms: Any) -> int:
    """Accept the first draft or draw from the residual, for any k."""
    laws = np.array([target_probs, target_probs]), draft_probs[None]
    return int(by_uniforms(*laws, drafts[:1], uniforms[[0, 1, 1]])[0][0])


def test_a_token_rule_as_a_function() -> None:
    assert lossless(maximal, kind="token", instances=PAIRS, examples=0).lossless

    def first_draft(target_probs: Any, draft_probs: Any, drafts: Any, uniforms: Any) -> int:
        return int(drafts[0])

    report = lossless(token_rule(first_draft, name="draft"), instances=PAIRS, examples=0)
    assert report.verifier == "draft"
    assert report.tv_distance == Fraction(1, 2)
    assert report.counterexample is not None
    assert len(report.counterexample.drafts or ()) == 2


@pytest.mark.parametrize("method", ["exact paths", "breakpoints", "Monte Carlo"])
def test_a_rule_of_this_project(method: str) -> None:
    """Bug: rows of uniforms are mixed up where many runs are made at once."""
    report = lossless(KSeq, method=method, instances=PAIRS, examples=0, delta=0.1)
    assert report.lossless
    assert report.verifier == "KSeq"


def decode(
    target: Any, draft: Any, prompt: Any, *, gamma: int, max_tokens: int, uniforms: Any
) -> Sequence[int]:
    return speculative(
        target, draft, [prompt], gamma=gamma, max_tokens=max_tokens, uniforms=[uniforms]
    ).sequences[0]


@pytest.mark.parametrize("method", ["exact paths", "breakpoints"])
def test_a_loop(method: str) -> None:
    """Bug: models in the wrong numbers, or a limit that the loop is not told."""
    adapter = loop(decode, name="speculative", max_tokens=2)
    assert lossless(adapter, method=method, instances=FEW[:1], examples=0).lossless

    def draft_alone(
        target: Any, draft: Any, prompt: Any, *, gamma: int, max_tokens: int, uniforms: Any
    ) -> Sequence[int]:
        return decode(draft, draft, prompt, gamma=gamma, max_tokens=max_tokens, uniforms=uniforms)

    assert not lossless(draft_alone, kind="loop", instances=FEW[:1], examples=0).lossless

    def overshoots(
        target: Any, draft: Any, prompt: Any, *, gamma: int, max_tokens: int, uniforms: Any
    ) -> Sequence[int]:
        return decode(
            target, draft, prompt, gamma=gamma, max_tokens=max_tokens + 1, uniforms=uniforms
        )

    report = lossless(overshoots, kind="loop", method=method, instances=FEW[:1], examples=0)
    assert "max_tokens was 3: cut off the additional tokens" in str(report)


def test_too_many_uniforms_are_refused() -> None:
    """Bug: an audit that runs out of uniforms reports a crash of the verifier."""
    half = Fraction(1, 2)
    fair = TableModel({(): [half, half]})

    def greedy_for_uniforms(target: Any, draft: Any, prompt: Any, uniforms: Any, **_: Any) -> Any:
        return [int(uniforms(600)[0] < 0.5)]

    adapter = loop(functools.partial(greedy_for_uniforms), name="many")
    with pytest.raises(InvalidParameterError, match="at least 600 uniforms, but only 512 are"):
        lossless(adapter, method="exact paths", instances=[Instance(fair, fair, 1)], examples=0)


@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        ([1, 0], (1, 0)),
        ((1, 0), (1, 0)),
        (np.array([1, -1, -1]), (1,)),
        ((np.array([1, 0, 2]), np.int64(1)), (1, 0)),
        (([1, 0, 2], np.array([0])), (1,)),
        ([-1, 1], (-1, 1)),
    ],
)
def test_results_as_tokens(given: Any, tokens: Any) -> None:
    assert as_tokens(given) == tokens


@pytest.mark.parametrize(
    ("verifier", "kind", "message"),
    [
        (7, None, "the verifier is 7; give a function"),
        (lambda a, b, c, d: 0, None, "cannot infer the kind"),
        (lambda a, b: 0, "chain", "it must have 3 parameters"),
        (
            lambda a, b, c, d: 0,
            "chain",
            "called uniforms, rng, generator or seed",
        ),
        (lambda a, b, c, rng, seed: 0, "chain", "then at most one, called"),
        (chain(by_uniforms), "chain", "this verifier has a kind already"),
        (DeviceVerifier("block"), "chain", "this verifier has a kind already"),
        (dict, "chain", "(cannot be read|it must have 3)"),
    ],
)
def test_what_is_no_verifier_is_refused(verifier: Any, kind: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        lossless(verifier, kind=kind)
