"""Beam search, plain and speculative, against searches written out naively."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm.decoding.beam import beam_search, speculative_beam_search
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidInputError, InvalidParameterError
from otm.models import LanguageModel, Session, StatelessModel, TableModel

V = 3
Scored = list[tuple[tuple[int, ...], Any]]


def naive(model: TableModel, prompt: tuple[int, ...], width: int, length: int, end: int) -> Scored:
    """Meister et al., Algorithm 1, with ties to the lexicographically smaller sequence."""
    beam: Scored = [((), Fraction(1))]
    for _ in range(length):
        candidates = []
        for tokens, score in beam:
            if tokens[-1:] == (end,):
                candidates.append((tokens, score))
                continue
            for token, probability in enumerate(model.probs(prompt + tokens)):
                if probability > 0:
                    candidates.append(((*tokens, token), score * probability))
        beam = sorted(candidates, key=lambda one: (-one[1], one[0]))[:width]
    return beam


def scored(beam: Any) -> Scored:
    return [(hypothesis.tokens, hypothesis.score) for hypothesis in beam]


def models(seed: int) -> tuple[TableModel, TableModel]:
    """Draw a target with ties and zeros, and a draft: the same, one like it, or any other."""
    rng = np.random.default_rng(seed)
    target = TableModel.random(V, order=2, rng=rng, max_weight=int(rng.integers(1, 5)))
    if seed % 3 == 0:
        return target, target
    other = TableModel.random(V, order=1, rng=rng)
    if seed % 3 == 1:
        return target, other
    contexts = [c for n in range(3) for c in itertools.product(range(V), repeat=n)]
    return target, TableModel({c: (7 * target.probs(c) + other.probs(c)) / 8 for c in contexts})


@pytest.mark.parametrize("start", range(0, 300, 50))
def test_both_searches_find_the_naive_beam_in_exact_fractions(start: int) -> None:
    """Fails if a tie falls otherwise, a zero or an end is passed, or drafts change a beam."""
    for seed in range(start, start + 50):
        rng = np.random.default_rng([seed, 1])
        target, draft = models(seed)
        width, length, end = (
            int(rng.integers(1, 6)),
            int(rng.integers(1, 7)),
            int(rng.integers(V + 1)),
        )
        prompts = [(0,), (2, 1), (1,)]
        want = [naive(target, prompt, width, length, end) for prompt in prompts]
        ends = None if end == V else end
        plain = beam_search(target, prompts, width, max_tokens=length, eos_token_id=ends)
        assert [scored(beam) for beam in plain.hypotheses] == want
        assert plain.steps == plain.target_calls
        fast = speculative_beam_search(
            target,
            draft,
            prompts,
            width,
            draft_width=width + int(rng.integers(3)),
            gamma=int(rng.integers(5)),
            max_tokens=length,
            eos_token_id=ends,
        )
        assert fast.hypotheses == plain.hypotheses
        assert fast.steps == plain.steps


def test_a_full_beam_holds_all_sequences() -> None:
    """Fails if a candidate is lost that no width excludes."""
    target, _ = models(1)
    uniform = TableModel({(): [Fraction(1, V)] * V})
    end, length = 0, 4
    everything = {}
    for tokens in itertools.chain.from_iterable(
        itertools.product(range(V), repeat=n) for n in range(1, length + 1)
    ):
        inner_end = end in tokens[:-1]
        if inner_end or (len(tokens) < length and tokens[-1] != end):
            continue
        laws = [target.probs((1, *tokens[:i])) for i in range(len(tokens))]
        probability = math.prod(law[t] for law, t in zip(laws, tokens, strict=True))
        if probability:
            everything[tokens] = probability
    assert sum(everything.values()) == 1
    want = sorted(everything.items(), key=lambda one: (-one[1], one[0]))
    size = V**length
    found = beam_search(target, [[1]], size, max_tokens=length, eos_token_id=end)
    assert scored(found.hypotheses[0]) == want
    found = speculative_beam_search(
        target, uniform, [[1]], size, gamma=3, max_tokens=length, eos_token_id=end
    )
    assert scored(found.hypotheses[0]) == want
    assert found.target_calls == 1  # everything was drafted


@pytest.mark.parametrize("seed", range(10))
def test_floats_are_searched_bit_for_bit_alike(seed: int) -> None:
    """Fails if the two ways add logarithms in different orders."""
    rng = np.random.default_rng(seed)
    contexts = [c for n in range(3) for c in itertools.product(range(5), repeat=n)]
    target = TableModel({c: rng.dirichlet(np.ones(5)) for c in contexts})
    draft = TableModel({c: 0.8 * target.probs(c) + 0.2 / 5 for c in contexts})
    settings: Any = {
        "max_tokens": 12,
        "eos_token_id": 4,
        "sampling": SamplingParameters(temperature=0.7),
    }
    plain = beam_search(target, [[0], [3, 1]], 3, **settings)
    fast = speculative_beam_search(target, draft, [[0], [3, 1]], 3, gamma=4, **settings)
    assert fast.hypotheses == plain.hypotheses
    assert fast.target_calls < plain.target_calls


def test_a_perfect_draft_saves_all_calls_but_one_in_gamma_plus_one() -> None:
    """Bug: drafts are not ranked by the target's scores so far and the draft's probabilities."""
    for seed in range(0, 60, 3):
        target, draft = models(seed)
        found = speculative_beam_search(
            target, draft, [[0]], 3, draft_width=3, gamma=3, max_tokens=11
        )
        assert (found.steps, found.target_calls) == (11, 3)
        assert found.steps_per_call == 11 / 3


def test_drafts_are_sampled_like_the_target_unless_told_otherwise() -> None:
    """Fails if the temperature does not reach the draft model."""
    rng = np.random.default_rng(0)
    model = TableModel({(): np.ones(6) / 6} | {(c,): rng.dirichlet(np.ones(6)) for c in range(6)})
    settings: Any = {"draft_width": 4, "gamma": 3, "max_tokens": 40}
    settings |= {"sampling": SamplingParameters(temperature=0.3)}
    alike = speculative_beam_search(model, model, [[0]], 4, **settings)
    other = speculative_beam_search(
        model, model, [[0]], 4, draft_sampling=SamplingParameters(temperature=3), **settings
    )
    assert alike.target_calls == 10 < other.target_calls
    assert alike.hypotheses == other.hypotheses


def test_a_wider_beam_of_drafts_saves_calls() -> None:
    """Fails if the drafts are no more than the target's width."""
    calls = {1: 0, 4: 0}
    for seed, factor in itertools.product(range(1, 60, 3), calls):
        target, draft = models(seed)
        found = speculative_beam_search(
            target, draft, [[0]], 2, draft_width=2 * factor, gamma=3, max_tokens=9
        )
        calls[factor] += found.target_calls
    assert calls[4] < 0.8 * calls[1]


def test_among_many_ties_the_lexicographically_smallest_win() -> None:
    """Fails if the sort is not stable, which small numbers of candidates do not show."""
    for half in (0.5, Fraction(1, 2)):
        model = TableModel({(): [half / 50] * 100})
        (beam,) = beam_search(model, [[0]], 30, max_tokens=2).hypotheses
        assert [hypothesis.tokens for hypothesis in beam] == [(0, token) for token in range(30)]


class Counting(LanguageModel):
    """Counts what a model reads."""

    returns_probs = True

    def __init__(self, model: TableModel) -> None:
        self.vocabulary, self._model = model.vocabulary, model
        self.runs = self.tokens = self.rows = 0

    def start(self, rows: int) -> Session:
        session = self._model.start(rows)
        read, append = session.read, session.append

        def counted_read(tokens: Any) -> None:
            self.tokens += (tokens >= 0).sum()
            read(tokens)

        def counted_append(tokens: Any) -> Any:
            self.runs += 1
            self.rows = max(self.rows, len(tokens))
            return append(tokens)  # which calls the other

        session.read, session.append = counted_read, counted_append  # type: ignore[method-assign]
        return session


def test_the_calls_that_are_reported_are_runs_of_the_target() -> None:
    """Fails if a block reads the target twice, or the report leaves a run out."""
    for seed in range(20):
        target, draft = models(seed)
        counting = Counting(target)
        found = speculative_beam_search(counting, draft, [[0]], 2, gamma=3, max_tokens=9)
        assert found.target_calls == counting.runs


def test_a_hypothesis_is_read_behind_the_one_that_it_continues() -> None:
    """Fails if a cache is not used: each step reads one token for each hypothesis."""
    model = TableModel.random(5, order=2, rng=np.random.default_rng(0))
    counting, drafter = Counting(model), Counting(model)
    beam_search(counting, [[0] * 50], 3, max_tokens=20)
    assert counting.tokens == 50 + 3 * 19
    speculative_beam_search(model, drafter, [[0] * 50], 3, draft_width=3, gamma=3, max_tokens=20)
    assert drafter.tokens <= 50 + 3 * 19


def test_a_beam_of_width_one_drafts_a_chain() -> None:
    """Fails if a draft is read in a row of its own, or more is drafted than can be output."""
    target, _ = models(2)
    verifier, drafter = Counting(target), Counting(target)
    found = speculative_beam_search(
        verifier, drafter, [[0] * 50], 1, draft_width=1, gamma=3, max_tokens=6
    )
    assert found.target_calls == verifier.runs == 2
    assert (verifier.rows, verifier.tokens) == (1, 50 + 5)
    assert drafter.runs == 3 + 1


def test_a_mixture_of_fractions_and_floats_is_compared_as_logarithms() -> None:
    """Fails if a product of fractions is compared with a sum of logarithms."""
    target = TableModel({(): [Fraction(1, 4), Fraction(3, 4)], (1,): [0.9, 0.1]})
    (beam,) = beam_search(target, [[0]], 3, max_tokens=2).hypotheses
    assert [hypothesis.tokens for hypothesis in beam] == [(1, 0), (0, 1), (1, 1)]
    np.testing.assert_allclose(
        [hypothesis.score for hypothesis in beam], np.log([0.675, 0.1875, 0.075]), rtol=1e-14
    )


def test_long_products_are_no_zeros() -> None:
    """Fails if a logarithm is taken of a fraction that underflows as a float."""
    model = TableModel({(): [Fraction(1, 2)] * 2})
    (beam,) = beam_search(model, [[0]], 1, max_tokens=1200).hypotheses
    assert beam[0].score == Fraction(1, 2**1200)
    assert beam[0].tokens == (0,) * 1200
    assert beam[0].log_probability == pytest.approx(-1200 * math.log(2), rel=1e-14)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 0}, "width = 0"),
        ({"width": 2.5}, "width = 2.5"),
        ({"width": 3, "draft_width": 2}, "draft_width = 2 is below width = 3"),
        ({"draft_width": 0}, "draft_width = 0"),
        ({"gamma": -1}, "γ = -1"),
        ({"max_tokens": 0}, "max_tokens = 0"),
        ({"eos_token_id": 7}, "eos_token_id = 7"),
    ],
)
def test_bad_parameters_are_refused(arguments: dict[str, Any], message: str) -> None:
    target, draft = models(0)
    with pytest.raises(InvalidParameterError, match=message):
        speculative_beam_search(target, draft, [[0]], **arguments)


def test_models_that_do_not_fit_are_refused() -> None:
    target, _ = models(0)
    with pytest.raises(InvalidInputError, match="vocabulary of 2 tokens"):
        speculative_beam_search(target, TableModel({(): [0.5, 0.5]}), [[0]])
    with pytest.raises(InvalidInputError, match="prompt 0 is empty"):
        beam_search(target, [[]])
    nothing: Any = None
    with pytest.raises(InvalidInputError, match="the target is a NoneType"):
        beam_search(nothing, [[0]])
    with pytest.raises(InvalidInputError, match="the draft is a NoneType"):
        speculative_beam_search(target, nothing, [[0]])


def test_what_is_no_way_to_sample_is_refused() -> None:
    """Fails if a temperature that is given as the sampling fails inside."""
    target, draft = models(0)
    wrong: Any = 0.5
    with pytest.raises(InvalidParameterError, match=r"sampling = 0\.5"):
        beam_search(target, [[0]], sampling=wrong)
    with pytest.raises(InvalidParameterError, match=r"sampling = 0\.5"):
        speculative_beam_search(target, draft, [[0]], draft_sampling=wrong)


def test_transformers_finds_the_same_beams() -> None:
    """Where nothing ends, `length_penalty=0` scores as we do."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=11, n_positions=32, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5
    )
    network = transformers.GPT2LMHeadModel(config).eval().double()

    class Whole(StatelessModel):
        """Reads the whole context every time, without a cache."""

        vocabulary = 11

        def probs(self, context: tuple[int, ...]) -> Any:
            with torch.no_grad():
                logits = network(torch.tensor([context or (0,)])).logits[0, -1]
            return torch.softmax(logits, -1).numpy()

    for width, prompt in itertools.product((2, 4), ([3, 1, 4], [5])):
        theirs = network.generate(
            torch.tensor([prompt]),
            num_beams=width,
            num_return_sequences=width,
            do_sample=False,
            max_new_tokens=8,
            min_new_tokens=8,
            length_penalty=0.0,
            eos_token_id=None,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
        )
        (ours,) = beam_search(Whole(), [prompt], width, max_tokens=8).hypotheses
        new = theirs.sequences[:, len(prompt) :].tolist()
        assert [list(hypothesis.tokens) for hypothesis in ours] == new
        np.testing.assert_allclose(
            [hypothesis.score for hypothesis in ours], theirs.sequences_scores, rtol=1e-6
        )
