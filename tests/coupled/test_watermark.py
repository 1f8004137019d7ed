"""Watermarks: texts keep the target's distribution; texts without the key get uniform p-values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from otm._core.probs.sampling import locate
from otm._core.probs.sparse import SparseProbs
from otm.coupled import (
    ListCoupling,
    WatermarkVerifier,
    decode_coupled,
    decode_watermarked,
    detect_watermark,
    watermark_keys,
    watermark_statistics,
)
from otm.coupled.clocks.numpy import SharedClocks, clock_bits
from otm.coupled.watermark import COINS, DRAFTS, METHODS, RECOVERED, RejectionRounds
from otm.coupling import MaximalCoupling
from otm.decoding import ModelDrafter, PromptLookup, Randomness, stream, verify_traversal
from otm.decoding.reading import Path
from otm.errors import (
    InvalidDraftCountError,
    InvalidInputError,
    InvalidParameterError,
    UnknownMethodError,
)
from otm.models import TableModel
from otm.problem import Problem
from otm.testing import BUDGET, Control
from otm.testing.sequences import output_distribution_of, sequence_distribution

F = Fraction
PROMPT = (0,)
REJECTION = METHODS[1:]
ROUNDS = import_module("otm.coupled.rounds")


def models(vocabulary: int, seed: int) -> tuple[TableModel, TableModel]:
    """Two unrelated tables of order 2, with zeros."""
    rng = np.random.default_rng(seed)
    return TableModel.random(vocabulary, 2, rng), TableModel.random(vocabulary, 2, rng)


# The distribution of texts


class ExactClocks:
    """Clocks with one uniform for each position and list, which draws by its inverse distribution.

    Of two tokens the first to ring is drawn just so: S_0/p_0 < S_1/p_1 if S_0/(S_0 + S_1) < p_0.
    """

    def __init__(self, source: Randomness) -> None:
        self._source = source
        self._known: dict[tuple[int, int], Any] = {}

    def uniform(self, position: int, of_list: int, token: int = 0) -> Any:
        if (position, of_list) not in self._known:
            self._known[position, of_list] = self._source(1)[0]
        return self._known[position, of_list]

    def draft(self, position: int, of_list: int, probs: SparseProbs) -> int:
        return locate(probs.tokens, probs.probabilities, self.uniform(position, of_list))

    def output(self, position: int, probs: SparseProbs) -> int:
        return self.draft(position, DRAFTS, probs)


def law_of_texts(
    models: tuple[TableModel, TableModel], method: str, gamma: Any, length: int, end: int | None
) -> dict[Path, Fraction]:
    """Exact distribution over all clocks and coins."""

    def decode(source: Randomness) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ROUNDS, "SharedClocks", lambda *_: ExactClocks(source))
            made = decode_watermarked(
                *models, [PROMPT], key=0, method=method, gamma=gamma, max_tokens=length,
                eos_token_id=end, uniforms=[source],
            )  # fmt: skip
        return made.sequences[0]

    return output_distribution_of(decode)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("vocabulary", "gamma", "length", "end"), [(2, 1, 3, None), (2, 2, 4, None), (3, 2, 3, 1)]
)
def test_texts_have_the_law_of_the_target(
    method: str, vocabulary: int, gamma: int, length: int, end: int | None
) -> None:
    """Catches clocks that decide twice: of a draft and its recovered token, of two rounds."""
    pair = models(vocabulary, seed=vocabulary + length)
    found = law_of_texts(pair, method, gamma, length, end)
    assert found == sequence_distribution(pair[0], PROMPT, length, end)


def test_one_list_for_drafts_and_recovered_tokens_loses_the_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control of the test above."""
    monkeypatch.setattr("otm.coupled.watermark.RECOVERED", DRAFTS)
    pair = models(3, seed=6)
    found = law_of_texts(pair, "rejection", 2, 3, 1)
    assert found != sequence_distribution(pair[0], PROMPT, 3, 1)


def test_block_verification_loses_the_law_by_clocks_of_positions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The counterexample of docs/theory/watermarks.md, exact for clocks of two tokens.

    A later draft decides where a block ends, and its clocks are read again behind that.
    """
    pair = TableModel({(): [F(1, 3), F(2, 3)]}), TableModel({(): [F(2, 3), F(1, 3)]})

    def output(*arguments: Any) -> Path:
        _, _, root, _, target_probs, uniforms = arguments
        return verify_traversal(root, target_probs, uniforms)

    monkeypatch.setattr(RejectionRounds, "output", output)
    found = law_of_texts(pair, "rejection", 2, 3, None)
    right = sequence_distribution(pair[0], PROMPT, 3)
    distance = sum(max(found.get(path, F(0)) - mass, F(0)) for path, mass in right.items())
    assert distance == F(1, 18)


def sampled(method: str, target: TableModel) -> Callable[..., npt.NDArray[np.int64]]:
    """Sampler of the number of a text of two tokens, with a key of its own."""

    def sample(rng: np.random.Generator, draws: int) -> npt.NDArray[np.int64]:
        made = decode_watermarked(
            target, DRAFT, [PROMPT] * draws, key=rng.integers(2**63, size=draws).tolist(),
            method=method, gamma=1, max_tokens=2, seed=int(rng.integers(2**63)),
        )  # fmt: skip
        return np.array([3 * a + b for a, b in made.sequences])

    return sample


TARGET = TableModel({(): [0.125, 0.375, 0.5], (0,): [2 / 3, 1 / 3, 0.0]})
OTHER = TableModel({(): [0.125, 0.375, 0.5], (0,): [1 / 3, 2 / 3, 0.0]})
DRAFT = TableModel({(): [0.5, 0.25, 0.25], (0,): [1 / 3, 1 / 3, 1 / 3]})


@pytest.mark.parametrize("method", REJECTION)
def test_texts_by_real_clocks(method: str) -> None:
    """Over random keys; the control decodes with another target."""
    laws = [
        [
            float(model.probs(PROMPT)[a]) * float(model.probs((*PROMPT, a))[b])
            for a, b in itertools.product(range(3), repeat=2)
        ]
        for model in (TARGET, OTHER)
    ]
    BUDGET.check_distribution(
        f"watermark by {method}: texts",
        sampled(method, TARGET),
        laws[0],
        delta=0.25,
        control=Control(sampled(method, OTHER), laws[1]),
    )


def test_what_follows_from_the_key() -> None:
    """All of coupled and keyed texts; of rejection all but the coins; without drafts one text."""
    given: dict[str, Any] = {"key": 5, "max_tokens": 40}
    texts = {
        (method, seed): decode_watermarked(
            TARGET, DRAFT, [PROMPT], method=method, seed=seed, **given
        ).sequences
        for method in METHODS
        for seed in (0, 1)
    }
    assert texts["coupled", 0] == texts["coupled", 1]
    assert texts["keyed rejection", 0] == texts["keyed rejection", 1]
    assert texts["rejection", 0] != texts["rejection", 1]
    alone = {
        decode_watermarked(TARGET, None, [PROMPT], method=m, **given).sequences for m in METHODS
    }
    assert alone == {texts["coupled", 0]}


def test_keys_of_a_seed_give_its_texts() -> None:
    """Bug: keys of other sequences, or of a source that has drawn something before."""
    prompts = [[0], [1], [2]]
    keys = watermark_keys(3, 3)
    by_seed = decode_coupled(TARGET, DRAFT, prompts, max_tokens=9, seed=3).sequences
    assert decode_watermarked(TARGET, DRAFT, prompts, key=keys, max_tokens=9).sequences == by_seed
    assert len(set(keys)) == 3


@pytest.mark.parametrize("method", METHODS)
def test_a_sequence_keeps_its_key(method: str) -> None:
    """Bug: the key of another sequence, where one has ended before."""
    options: dict[str, Any] = {"method": method, "eos_token_id": 2, "max_tokens": 9}
    keys, prompts = [4, 5, 6, 7], [[0], [1], [0], [1]]
    sources = [np.random.default_rng(i).random for i in range(4)]
    together = decode_watermarked(TARGET, DRAFT, prompts, key=keys, uniforms=sources, **options)
    assert len({len(text) for text in together.sequences}) > 1
    for i, (key, prompt) in enumerate(zip(keys, prompts, strict=True)):
        source = [np.random.default_rng(i).random]
        alone = decode_watermarked(TARGET, DRAFT, [prompt], key=key, uniforms=source, **options)
        assert alone.sequences[0] == together.sequences[i]


# Detection


def test_a_single_uniform_is_that_of_the_row() -> None:
    """Bug: another counter where a clock is read without the row."""
    clocks = SharedClocks(2**64 - 1, 3)
    for position, of_list in ((0, 0), (7, 2), (2**40, 1)):
        bits = clock_bits(clocks.key, position, range(of_list, of_list + 1), 11)
        row = bits.astype(float) * 2.0**-64 + 2.0**-65
        found = [clocks.uniform(position, of_list, token) for token in range(11)]
        assert found == np.minimum(row, 1 - 2.0**-53).tolist()


def test_scores_are_those_of_the_definition() -> None:
    """In small steps, from the clocks themselves."""
    text, key, start = [3, 0, 2, 2, 1, 5, 0, 3], 11, 4
    places = list(enumerate(text, start))
    times = {
        m: [-math.log1p(-SharedClocks(key).uniform(t, m, x)) for t, x in places] for m in range(3)
    }

    def total(of_clocks: list[float]) -> float:
        return sum(-math.log(1 - math.exp(-clock)) for clock in of_clocks)

    least = [3 * min(of_token) for of_token in zip(*times.values(), strict=True)]
    drafted = [SharedClocks(key).uniform(t, COINS, 0) < 0.5 for t, _ in places]
    pointed = [times[DRAFTS if d else RECOVERED][i] for i, d in enumerate(drafted)]
    assert 0 < sum(drafted) < len(text)
    for found, score, clocks in (
        (detect_watermark(text, key, start), total(times[0]), 8),
        (detect_watermark(text, key, start, lists=3), total(least), 8),
        (
            detect_watermark(text, key, start, method="rejection"),
            total(times[DRAFTS] + times[RECOVERED]),
            16,
        ),
        (
            detect_watermark(text, key, start, method="keyed rejection", threshold=0.5),
            total(pointed),
            8,
        ),
    ):
        assert found.score == pytest.approx(score, rel=1e-12)
        assert found.clocks == clocks
        terms = [score**i / math.factorial(i) for i in range(clocks)]
        assert found.p_value == pytest.approx(math.exp(-score) * math.fsum(terms), rel=1e-9)


def tenths(tokens: int, **options: Any) -> Callable[..., npt.NDArray[np.int64]]:
    """Sampler of tenths of the p-value of one text, under random keys."""
    text = [i % 3 for i in range(tokens)]

    def sample(rng: np.random.Generator, draws: int) -> npt.NDArray[np.int64]:
        keys = rng.integers(2**63, size=draws).tolist()
        found = [detect_watermark(text, key, 5, **options).p_value for key in keys]
        return np.minimum(np.floor(10 * np.array(found)), 9).astype(np.int64)

    return sample


def tenths_of_marked(rng: np.random.Generator, draws: int) -> npt.NDArray[np.int64]:
    """Draw the same of a text of one token that was generated with its key, from two."""
    model = TableModel({(): [0.5, 0.5]})
    keys = rng.integers(2**63, size=draws).tolist()
    made = decode_watermarked(model, None, [PROMPT] * draws, key=keys, max_tokens=1)
    pairs = zip(made.sequences, keys, strict=True)
    found = [detect_watermark(text, key, 1).p_value for text, key in pairs]
    return np.minimum(np.floor(10 * np.array(found)), 9).astype(np.int64)


@pytest.mark.parametrize(
    ("tokens", "options"),
    [
        (1, {}),
        (6, {}),
        (6, {"lists": 3}),
        (4, {"method": "rejection"}),
        (6, {"method": "keyed rejection", "threshold": 0.4}),
    ],
)
def test_p_values_of_a_text_without_the_key_are_uniform(
    tokens: int, options: dict[str, Any]
) -> None:
    """The control is marked: with clocks of rate 2, u is below v with probability 1 − (1 − v)²."""
    edges = np.linspace(0, 1, 11)
    BUDGET.check_distribution(
        f"p-values of watermarks: {tokens}, {options}",
        tenths(tokens, **options),
        np.full(10, 0.1),
        delta=0.2,
        control=Control(tenths_of_marked, np.diff(1 - (1 - edges) ** 2)),
    )


@pytest.mark.parametrize("method", METHODS)
def test_marked_texts_are_found(method: str) -> None:
    """With the key and the position, and not with others."""
    made = decode_watermarked(
        TARGET, DRAFT, [PROMPT] * 2, key=[1, 2], method=method, max_tokens=400, seed=0
    )
    for text, key in zip(made.sequences, (1, 2), strict=True):
        assert detect_watermark(text, key, 1, method=method).p_value < 1e-6
        assert detect_watermark(text, key, 1).p_value < 1e-6, "most tokens are drafts"
        assert detect_watermark(text, key + 4, 1, method=method).p_value > 1e-3
        assert detect_watermark(text, key, 2, method=method).p_value > 1e-3


# Distributions


PAIRS = [
    ([0.5, 0.25, 0.25], [0.25, 0.5, 0.25]),
    ([0.75, 0.25, 0.0], [0.0, 0.5, 0.5]),
    ([0.1, 0.2, 0.7], [0.6, 0.3, 0.1]),
]


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_acceptance_and_strength_are_those_of_the_definition(p: Any, q: Any) -> None:
    """Strength as E KL over all drafts and recovered tokens."""
    laws, problem = watermark_statistics(p, q), Problem(p, q, 1)
    assert laws["coupled"].acceptance == ListCoupling(problem).acceptance
    best = pytest.approx(float(MaximalCoupling(problem).acceptance), abs=1e-15)
    assert [laws[name].acceptance for name in REJECTION] == [best, best]
    rest = np.maximum(np.subtract(q, p), 0)
    strength = 0.0
    for x, z in itertools.product(range(3), repeat=2):
        weight = p[x] * rest[z] / rest.sum()
        accepted = min(1.0, q[x] / p[x]) if p[x] else 0.0
        for token, chance in ((x, accepted), (z, 1 - accepted)):
            if weight and chance:
                strength += weight * chance * math.log(chance / q[token])
    assert laws["rejection"].strength == pytest.approx(strength, abs=1e-12)
    entropy = -sum(mass * math.log(mass) for mass in q if mass)
    assert laws["coupled"].strength == laws["keyed rejection"].strength == pytest.approx(entropy)


def test_scores_where_drafts_are_all_or_none() -> None:
    """Equal models accept all, disjoint ones nothing; the other list says nothing."""
    p, q = [0.75, 0.25, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]
    for pair, threshold in (((q, q), 1), ((p, q), 0)):
        laws = watermark_statistics(*pair, threshold=threshold)
        assert laws["coupled"].score == 1.5  # H(2)
        assert laws["keyed rejection"].score == pytest.approx(1.5)
        assert laws["rejection"].score == pytest.approx(2.5)
        assert laws["rejection"].clocks == 2


LONGEST = 8.0
"""Scores are cut here, which one token in 200 reaches, and which moves means by as much."""


def scores(method: str, p: Any, q: Any, wrong: int = 0) -> Callable[..., npt.NDArray[np.float64]]:
    """Sampler of scores of the first token, which is drafted; a wrong key shows nothing."""
    target, draft = TableModel({(): q}), TableModel({(): p})

    def sample(rng: np.random.Generator, draws: int) -> npt.NDArray[np.float64]:
        keys = rng.integers(2**62, size=draws).tolist()
        made = decode_watermarked(
            target, draft, [PROMPT] * draws, key=keys, method=method, gamma=1, max_tokens=2,
            seed=int(rng.integers(2**62)),
        )  # fmt: skip
        pairs = zip(made.sequences, keys, strict=True)
        found = [detect_watermark(text[:1], key + wrong, 1, method=method) for text, key in pairs]
        return np.minimum([each.score / each.clocks for each in found], LONGEST)

    return sample


@pytest.mark.parametrize("method", METHODS)
def test_scores_have_the_mean_of_the_law(method: str) -> None:
    """Catches late clocks, or coins, that the closed form forgets."""
    p, q = [1 / 16] * 16, [1 / 32] * 8 + [3 / 32] * 8  # high scores, which few draws show
    law = watermark_statistics(p, q)[method]
    BUDGET.check_mean(
        f"scores of watermarks: {method}",
        scores(method, p, q),
        law.score / law.clocks,
        bounds=(0, LONGEST),
        delta=law.score / law.clocks - 1,
        control=Control(scores(method, p, q, wrong=1), 1.0),
    )


def test_two_tokens_have_no_trade_off_and_three_have() -> None:
    """Coupled drafts of two tokens are accepted as often as can be, with all of the score."""
    for p, q in (([0.75, 0.25], [0.25, 0.75]), ([0.5, 0.5], [0.1, 0.9])):
        laws = watermark_statistics(p, q)
        assert laws["coupled"].acceptance == pytest.approx(laws["rejection"].acceptance)
        assert laws["coupled"].score > laws["keyed rejection"].score
    laws = watermark_statistics(*PAIRS[0])
    assert laws["coupled"].acceptance == pytest.approx(0.7)
    assert laws["rejection"].acceptance == 0.75


# Input


def test_bad_input() -> None:
    """Before any model is run."""
    text = [0, 1]
    with pytest.raises(UnknownMethodError, match="there are coupled, rejection, keyed rejection"):
        decode_watermarked(TARGET, DRAFT, [[0]], key=1, method="keyed")
    with pytest.raises(InvalidParameterError, match="key = -1"):
        decode_watermarked(TARGET, DRAFT, [[0]], key=-1)
    with pytest.raises(InvalidParameterError, match="key = 18446744073709551616"):
        decode_watermarked(TARGET, DRAFT, [[0]], key=[2**64])
    with pytest.raises(InvalidParameterError, match="3 keys for 2 prompts"):
        decode_watermarked(TARGET, DRAFT, [[0], [1]], key=[1, 2, 3])
    for drafter in (PromptLookup(), ModelDrafter(DRAFT, 2), ModelDrafter(DRAFT, draft_kind="Top")):
        with pytest.raises(InvalidInputError, match="one chain of drafts"):
            decode_watermarked(TARGET, drafter, [[0]], key=1, method="rejection")
    with pytest.raises(InvalidInputError, match="one chain of drafts"):
        stream(TARGET, [[0]], PromptLookup(), WatermarkVerifier(1, "keyed rejection"))
    for tokens in ([], [[0, 1]], [0.5], "text", None):
        with pytest.raises(InvalidInputError, match="give the token ids of one text"):
            detect_watermark(tokens, 1, 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="token -1"):
        detect_watermark([0, -1], 1, 1)
    with pytest.raises(InvalidParameterError, match="start = -1"):
        detect_watermark(text, 1, -1)
    with pytest.raises(InvalidParameterError, match=r"key = 0\.5"):
        detect_watermark(text, 0.5, 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidDraftCountError):
        detect_watermark(text, 1, 1, lists=0)
    with pytest.raises(InvalidParameterError, match="lists = 2 for rejection"):
        detect_watermark(text, 1, 1, lists=2, method="rejection")
    with pytest.raises(InvalidParameterError, match=r"threshold = 0\.5 for coupled"):
        detect_watermark(text, 1, 1, threshold=0.5)
    with pytest.raises(InvalidParameterError, match="threshold = 2"):
        detect_watermark(text, 1, 1, threshold=2, method="keyed rejection")
    with pytest.raises(InvalidParameterError, match="seed = None"):
        watermark_keys(None, 2)  # type: ignore[arg-type]


def test_the_key_is_not_shown() -> None:
    assert repr(WatermarkVerifier(12345)) == "WatermarkVerifier(method='coupled')"


def looking_ahead(steps: Sequence[Any]) -> int:
    """Draft nothing more where the draft behind the first rejected one was token 1."""
    if not steps:
        return 2
    drafts, place = steps[-1].drafts[0] if steps[-1].drafts else (), len(steps[-1].output)
    return 0 if len(drafts) > place and drafts[place] == 1 else 1


@pytest.mark.parametrize("method", METHODS)
def test_a_policy_does_not_see_drafts_whose_clocks_are_read_again(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: γ that follows from a draft that was not reached; exact, with a negative control."""
    laws = [F(1, 10), F(3, 10), F(6, 10)], [F(5, 10), F(3, 10), F(2, 10)]
    pair = TableModel({(): laws[0]}), TableModel({(): laws[1]})
    right = sequence_distribution(pair[0], PROMPT, 3)
    assert law_of_texts(pair, method, looking_ahead, 3, None) == right
    if method != "coupled":
        monkeypatch.setattr(RejectionRounds, "steps_are_independent", True)
        assert law_of_texts(pair, method, looking_ahead, 3, None) != right


@pytest.mark.parametrize("key", [{5, 9}, {1: 2}, b"ab", "7", 1.5], ids=str)
def test_what_is_no_key_is_refused(key: Any) -> None:
    """Bug: numbers in no order taken for keys of sequences."""
    with pytest.raises(InvalidParameterError, match="key"):
        WatermarkVerifier(key)
