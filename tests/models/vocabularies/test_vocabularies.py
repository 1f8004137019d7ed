"""Drafts of another vocabulary: exact output distributions, acceptance, real tokenizers."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm import alpha
from otm.coupled import decode_coupled
from otm.decoding import (
    Drafter,
    DraftNode,
    ModelDrafter,
    Randomness,
    StringDrafter,
    spectr,
    speculative,
    stream,
    verify_target_only,
)
from otm.decoding.reading import Path
from otm.decoding.verifiers.by_rule import host_verifier, tree_rule
from otm.errors import InvalidDistributionError, InvalidInputError
from otm.models import GPT, GPTConfig, IntersectionModel, Spelling, TableModel, load
from otm.models.base import LanguageModel
from otm.testing.sequences import output_distribution_of, sequence_distribution

pytestmark = pytest.mark.usefixtures("each_plan_once")

F = Fraction
TARGET = Spelling(["a", "b", "ab", ""], names=["a", "b", "ab", "<end>"])
DRAFT = Spelling(["ba", "b", "", "a"], names=["ba", "b", "<end>", "a"])
FEW = Spelling(["a", "ab", ""], names=["a", "ab", "<end>"])
FEW_OF_DRAFT = Spelling(["b", "", "a"], names=["b", "<end>", "a"])
STRANGE = Spelling(["aba", "bb", ""], names=["aba", "bb", ""])
PROMPT = (0,)


def tables(seed: int, sizes: tuple[int, int] = (4, 4)) -> tuple[TableModel, TableModel]:
    """Two unrelated tables of order 2, with zeros."""
    rng = np.random.default_rng(seed)
    target, draft = (TableModel.random(size, 2, rng) for size in sizes)
    return target, draft


def law(target: TableModel, drafter: Drafter, rule: str, gamma: int) -> Any:
    """Return a loop's exact distribution of texts of γ + 1 tokens; the largest id ends a text."""
    verify = verify_target_only if rule == "target-only" else host_verifier(tree_rule(rule))

    def decode(uniforms: Randomness) -> Path:
        steps = stream(
            target, [PROMPT], drafter, verify, gamma=gamma, max_tokens=gamma + 1,
            eos_token_id=target.vocabulary - 1, uniforms=[uniforms],
        )  # fmt: skip
        return tuple(itertools.chain.from_iterable(step.output for step in steps))

    return output_distribution_of(decode)


@pytest.mark.parametrize(("rule", "k"), [("k-Seq", 1), ("traversal", 1), ("optimal", 2)])
def test_shared_tokens_keep_the_law(rule: str, k: int) -> None:
    """Bug: ids of the draft for ids of the target, masses not divided, places of other tokens."""
    target, draft = tables(3, (3, 3))
    shared = IntersectionModel(draft, FEW_OF_DRAFT, FEW)
    gamma = 2 if k == 1 else 1
    found = law(target, ModelDrafter(shared, k), rule, gamma)
    assert found == sequence_distribution(target, PROMPT, gamma + 1, 2)


@pytest.mark.parametrize("spelling", [FEW_OF_DRAFT, STRANGE], ids=["like", "strange"])
def test_strings_keep_the_law(spelling: Spelling) -> None:
    """Bug: a draft that is accepted because its text fits, though the target drew other tokens."""
    target, draft = tables(4, (3, 3))
    drafter = StringDrafter(draft, spelling, FEW)
    assert law(target, drafter, "target-only", 2) == sequence_distribution(target, PROMPT, 3, 2)


DOUBLED = Spelling(["b", "b", ""], lambda text: [1] * len(text), ["b", "b", "<end>"])
DOUBLED_OF_DRAFT = Spelling(["b", "", "b"], lambda text: [2] * len(text), ["b", "<end>", "b"])


def test_a_name_of_two_tokens_keeps_the_law() -> None:
    """Bug: the mass of a byte token for that of the letter with its name."""
    target, draft = tables(5, (3, 3))
    shared = IntersectionModel(draft, DOUBLED_OF_DRAFT, DOUBLED)
    assert shared.translation.tokens.by_target == {1: 2, 2: 1}
    expected = sequence_distribution(target, PROMPT, 3, 2)
    assert law(target, ModelDrafter(shared), "k-Seq", 2) == expected
    strings = StringDrafter(draft, DOUBLED_OF_DRAFT, DOUBLED)
    assert law(target, strings, "target-only", 2) == expected


@pytest.mark.parametrize("pairs", [{0: 1, 1: 0, 2: 2}, {1: 2, 0: 2}, {2: 0}], ids=str)
def test_any_map_of_tokens_keeps_the_law(pairs: dict[int, int]) -> None:
    """A map that mixes tokens up, that gives one twice or that lacks some costs acceptance only."""
    target, draft = tables(6, (3, 3))
    shared = IntersectionModel(draft, FEW_OF_DRAFT, FEW)
    shared.translation.tokens.by_target = pairs
    expected = sequence_distribution(target, PROMPT, 2, 2)
    assert law(target, ModelDrafter(shared), "k-Seq", 1) == expected
    assert law(target, ModelDrafter(shared, 2), "optimal", 1) == expected


def test_a_wrong_translation_of_drafts_only_costs_acceptance_and_a_wrong_law_is_seen() -> None:
    """Negative control: drafts of the intersection with the draft's own, larger masses."""

    class NotDivided(ModelDrafter):
        def draft(self, *arguments: Any) -> list[DraftNode]:
            roots = super().draft(*arguments)
            for root in roots:
                if root.draft_probs is not None:
                    probs = root.draft_probs
                    halved = probs.probabilities * F(1, 2)
                    object.__setattr__(probs, "probabilities", halved)
            return roots

    target, draft = tables(3, (3, 3))
    shared = IntersectionModel(draft, FEW_OF_DRAFT, FEW)
    found = law(target, NotDivided(shared), "k-Seq", 1)
    assert found != sequence_distribution(target, PROMPT, 2, 2)


def test_the_intersection_is_the_draft_among_shared_tokens() -> None:
    """By hand: a is token 3 of the draft, b token 1, the end token 2; abab is read as a, ba, b."""
    draft = TableModel(
        {(): [F(1, 2), F(1, 4), F(1, 8), F(1, 8)], (3, 1): [0, 0, 0, 1], (0, 1): [0, 0, 1, 0]}
    )
    session = IntersectionModel(draft, DRAFT, TARGET).start(1)
    found = session.append(np.array([[0, 1, 2, 1]]))
    usual = [F(1, 4), F(1, 2), 0, F(1, 4)]
    assert found.tolist() == [[usual, [1, 0, 0, 0], [0, 0, 0, 1], usual]]


def test_acceptance_is_that_of_the_divided_masses_and_never_below_the_union() -> None:
    """The draft's own masses waste what is not shared."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        target, draft = tables(int(rng.integers(2**31)))
        divided = IntersectionModel(draft, DRAFT, TARGET).start(1).append(np.array([[0]]))[0, 0]
        fresh = draft.probs((3,))
        total = sum(fresh[d] for d in (3, 1, 2))
        if total:
            expected = [fresh[3] / total, fresh[1] / total, 0, fresh[2] / total]
            assert divided.tolist() == expected
        q_after = target.probs((0,))
        union = sum(min(q_after[t], fresh[d]) for t, d in ((0, 3), (1, 1), (3, 2)))
        assert alpha(divided, q_after, 1) >= union


def test_strings_are_accepted_where_no_token_is_shared() -> None:
    """The smallest example: the target writes ab as one token, the draft as two."""
    target = TableModel({(): [F(0), 0, 1, 0]})
    draft = TableModel({(): [0, F(1, 4), 0, F(3, 4)], (3,): [F(0), 1, 0, 0]})
    shared, strings = IntersectionModel(draft, DRAFT, TARGET), StringDrafter(draft, DRAFT, TARGET)
    for drafter, rule, accepted in (
        (ModelDrafter(shared), "k-Seq", 0),
        (strings, "target-only", 3),
    ):
        kept: Counter[int] = Counter()
        verify = verify_target_only if rule == "target-only" else host_verifier(tree_rule(rule))

        def first(uniforms: Randomness, drafter: Any = drafter, verify: Any = verify) -> Path:
            steps = stream(target, [(2,)], drafter, verify, gamma=2, uniforms=[uniforms])
            return (next(steps).accepted,)

        for (number,), probability in output_distribution_of(first).items():
            kept[0] += number * probability
        assert kept[0] == F(accepted, 4), rule


def test_expected_matches_of_strings_are_the_sum_over_texts() -> None:
    """Mean accepted drafts are Σ D(x) T(x); D is the distribution of the re-encoded draft text."""
    target, draft = tables(8)
    drafter = StringDrafter(draft, DRAFT, TARGET)

    def first(uniforms: Randomness) -> Path:
        steps = stream(target, [(0,)], drafter, verify_target_only, gamma=2, uniforms=[uniforms])
        return (next(steps).accepted,)

    accepted = sum(n * p for (n,), p in output_distribution_of(first).items())
    expected = F(0)
    for x, y in itertools.product(range(4), repeat=2):
        drawn = draft.probs((3,))[x] * draft.probs((3, x))[y]
        path = drafter.cut((x, y), 2)
        reached = drawn
        for i, token in enumerate(path):
            reached *= target.probs((0, *path[:i]))[token]
            expected += reached
    assert accepted == expected > 0


def test_a_row_depends_on_its_tokens_alone() -> None:
    """Bug: what was rewound shows, or how a row was cut into calls."""
    rng = np.random.default_rng(5)
    spelling = Spelling([chr(i) for i in range(256)])
    words = Spelling(["the", " ", "e", "in", "n", "th", "t", "", "and"])
    model = IntersectionModel(load("small"), spelling, words)
    session = model.start(2)
    rows: list[list[int]] = [[], []]
    for _ in range(12):
        new = rng.integers(0, 9, size=(len(rows), 3))
        counts = rng.integers(0, 4, size=len(rows))
        new[np.arange(3) >= counts[:, None]] = -1
        scores = session.append(new)
        for r, count in enumerate(counts):
            rows[r] += new[r, :count].tolist()
            if count:
                fresh = model.start(1).append(np.array([rows[r]]))
                assert scores[r, :count].numpy() == pytest.approx(
                    fresh[0, -count:].numpy(), abs=1e-4
                )
        chosen = rng.integers(0, len(rows), size=2)
        lengths = np.array([rng.integers(0, len(rows[r]) + 1) for r in chosen])
        session.keep(chosen, lengths)
        rows = [rows[r][:n] for r, n in zip(chosen, lengths, strict=True)]


def test_rows_longer_than_the_model_takes_go_on() -> None:
    """Bug: a context that fits the target ends in an error of the draft model."""
    config = GPTConfig(layers=1, width=8, heads=2, context_length=6, vocabulary=4)
    target = GPT.random(GPTConfig(layers=1, width=8, heads=2, vocabulary=4), 0)
    draft = GPT.random(config, 1)
    shared = IntersectionModel(draft, DRAFT, TARGET)
    for drafter in (shared, StringDrafter(draft, DRAFT, TARGET)):
        for rule in ("k-Seq", "target-only"):
            if rule == "target-only" or drafter is shared:
                made = spectr(
                    target, drafter, [[2, 0], [3]], rule=rule, gamma=3, max_tokens=20, seed=0,
                    **({"k": 1} if drafter is shared else {}),
                )  # fmt: skip
                assert [len(row) for row in made.sequences] == [20, 20]


def test_a_target_with_many_tokens_verifies_on_its_device() -> None:
    """Tensors of the intersection in the rounds of kernels, also where nothing was read yet."""
    size = 3000
    configs = [GPTConfig(layers=1, width=8, heads=2, vocabulary=n) for n in (size, 256)]
    target, draft = (GPT.random(config, seed) for seed, config in enumerate(configs))
    spelling = Spelling([chr(i) for i in range(256)])
    shared = IntersectionModel(draft, spelling, Spelling([chr(i) for i in range(size)]))
    made = speculative(target, shared, [[65], [66, 2500]], gamma=3, max_tokens=12, seed=0)
    drafts = [token for step in made.steps for path in step.drafts for token in path]
    assert drafts
    assert max(drafts) < 256


def test_the_text_of_coupled_decoding_is_that_without_drafts() -> None:
    """Bug: drafts of strings taken for drafts with a distribution."""
    target = load("large")
    spelling = Spelling([chr(i) for i in range(256)])
    made = [
        decode_coupled(target, drafter, [list(b"In the")], gamma=4, max_tokens=24, seed=3).sequences
        for drafter in (None, StringDrafter(load("small"), spelling, spelling))
    ]
    assert made[0] == made[1]


def test_a_token_that_only_the_tokenizer_has_ends_the_drafts() -> None:
    """Bug: a draft that the target has no score for, and an error in the middle of a text."""
    spelling = Spelling(["a", "b", "c"])
    draft, target = TableModel({(): [0, 0, 1]}), TableModel({(): [0.5, 0.5]})
    drafter = StringDrafter(draft, spelling, spelling, vocabulary=2)
    made = spectr(target, drafter, [[0]], rule="target-only", gamma=2, max_tokens=4, seed=0)
    assert len(made.sequences[0]) == 4


def test_where_nothing_is_known_fractions_stay_fractions() -> None:
    draft = TableModel({(): [F(0), F(0), F(0), F(1)]})
    model = IntersectionModel(draft, Spelling(["a", "b", "c", "z"]), Spelling(["a", "b", "c"]))
    assert model.start(1).append(np.array([[0]])).tolist() == [[[F(1, 3)] * 3]]


def test_scores_that_are_not_numbers_are_not_repaired() -> None:
    """Bug: NaN of a broken draft model read as a distribution that nothing is known of."""
    draft = GPT.random(GPTConfig(layers=1, width=8, heads=2, vocabulary=4), 0)
    draft.weights["norm"].fill_(float("nan"))
    target = GPT.random(GPTConfig(layers=1, width=8, heads=2, vocabulary=4), 1)
    with pytest.raises(InvalidDistributionError, match="NaN"):
        speculative(target, IntersectionModel(draft, DRAFT, TARGET), [[0]], max_tokens=4, seed=0)


def test_a_special_token_is_no_part_of_the_word_behind_it() -> None:
    """Bug: the first word behind a beginning or a marker lost."""
    target = Spelling(["", "Hel", "lo", " wor", "ld"], names=["<bos>", "Hel", "lo", " wor", "ld"])
    draft = Spelling(["", *"Helo wrd"], names=["<bos>", *"Helo wrd"])
    row = IntersectionModel(TableModel({(): [1 / 9] * 9}), draft, target).translation.row
    assert draft.decode(row([0, 1, 2, 3, 4, 0, 1])) == "Hello worldHel"
    assert row([0, 1])[0] == 0


def test_long_texts_are_read_once() -> None:
    """Bug: what slides out of a context a token at a time, so that no cache serves."""
    counts: list[int] = []

    class Counting(TableModel):
        context_length = 20

        def probs(self, context: tuple[int, ...]) -> Any:
            counts.append(1)
            return super().probs(context)

    spelling = Spelling(["a", "b"])
    target, draft = TableModel({(): [0.5, 0.5]}), Counting({(): [0.5, 0.5]})
    drafter = StringDrafter(draft, spelling, spelling)
    spectr(target, drafter, [[0]], rule="target-only", gamma=2, max_tokens=200, seed=0)
    assert len(counts) < 1500


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Spelling("abc"), "give a string for every token"),
        (lambda: Spelling(["a", 1]), "give a string for every token"),  # type: ignore[list-item]
        (lambda: Spelling([]), "0 names for 0 texts"),
        (lambda: Spelling(["a"], names=["a", "b"]), "2 names for 1 texts"),
        (lambda: IntersectionModel(tables(0)[0], STRANGE, TARGET), "share no token"),
        (lambda: Spelling(["a"], "x"), "encoder = 'x'; give a function"),  # type: ignore[arg-type]
        (lambda: Spelling(["a"], lambda text: [0.7]).encode("a"), "must return integers"),  # type: ignore[list-item]
        (lambda: Spelling(["a"], lambda text: [-1]).encode("a"), "from 0 to 0"),
        (lambda: Spelling(["a"]).decode([1]), "from 0 to 0"),
        (lambda: Spelling(["a"]).encode(5), "give a string"),  # type: ignore[arg-type]
        (lambda: StringDrafter("x", DRAFT, TARGET), "give a LanguageModel"),  # type: ignore[arg-type]
        (lambda: IntersectionModel(tables(0)[0], DRAFT, None), "give a Spelling"),  # type: ignore[arg-type]
        (
            lambda: IntersectionModel(tables(0)[0], DRAFT, TARGET).start(1).append(np.array([[7]])),
            "the tokens 0 to 3",
        ),
    ],
    ids=[
        "string",
        "number",
        "nothing",
        "names",
        "disjoint",
        "encoder",
        "floats",
        "negative",
        "decode",
        "encode",
        "model",
        "spelling",
        "token",
    ],
)
def test_bad_vocabularies_are_refused(make: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()


def test_session_types() -> None:
    """A model of another vocabulary is a language model like any."""
    assert isinstance(IntersectionModel(tables(0)[1], DRAFT, TARGET), LanguageModel)
