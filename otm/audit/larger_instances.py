"""Larger pairs of models: many tokens, long chains, long prompts, long contexts.

These pairs show mistakes that depend on size.  A verifier still has few paths on these pairs: their
distributions have few possible tokens, spread over the vocabulary, or only one token after most
contexts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

from otm.audit.adapters.base import Instance
from otm.audit.instances import INSTANCES
from otm.decoding.reading import Path
from otm.models.table import TableModel

ORDER = 5
"""Length of the longest context that a row depends on."""

WIDE, NARROW = 12, 4
"""Numbers of possible tokens in a row, in wide and in narrow rows."""

WIDER, WIDEST = 24, 48
"""Numbers of possible tokens in wider rows, for one draft followed by a certain token."""

DEEP = 12
"""Number of drafts of the longest chain."""

RARE = Fraction(1, 50)
"""Weight of a rare token; other tokens have weights 1 to 5, so it has probability below 1/1000."""

MOST_TOKENS, MOST_DRAFTS = 10_000, 32
"""Largest numbers of tokens and drafts that a user may request."""

Rows = dict[Path, dict[int, Fraction]]
"""Weights of tokens, by context."""


def spread(vocabulary: int, count: int) -> list[int]:
    """Return different tokens, evenly spread from the first to the last."""
    count = min(count, vocabulary)
    return [i * (vocabulary - 1) // max(count - 1, 1) for i in range(count)]


def _weights(tokens: list[int], random: Random) -> dict[int, Fraction]:
    """Draw weights of some tokens; one token is rare if there are many."""
    count = len(tokens)
    if count > WIDE:
        # All weights differ, so that the order of tokens does not depend on ties.
        drawn = random.sample(range(1, count + 1), count)
    else:
        drawn = [random.randint(1, 5) for _ in tokens]
    weights = dict(zip(tokens, map(Fraction, drawn), strict=True))
    if count > NARROW:
        weights[tokens[random.randrange(count)]] = RARE
    return weights


def _model(vocabulary: int, rows: Rows) -> TableModel:
    table = {}
    for context, weights in rows.items():
        row = [Fraction(0)] * vocabulary
        for token, weight in weights.items():
            row[token] = weight / sum(weights.values())
        table[context] = row
    return TableModel(table)


def spread_out(
    vocabulary: int,
    *,
    wide: bool,
    gamma: int = 1,
    k: int = 1,
    prompt: Path = (1, 0),
    length: int | None = None,
    seed: int = 0,
    counts: tuple[int, int] = (WIDE, NARROW),
) -> Instance:
    """Make a pair with a target of many tokens and a draft of few, or the reverse if not `wide`.

    `counts` has the numbers of possible tokens after the prompt.  After other contexts, only one
    token is possible.
    """
    random = Random(seed)
    many = spread(vocabulary, counts[0])
    some = many[len(many) // 3], many[len(many) // 2] - 1, many[0], many[-1]
    few = sorted({*some[: counts[1]]})
    target, draft = (
        _model(vocabulary, {prompt: _weights(tokens, random), (): {then: Fraction(1)}})
        for tokens, then in zip((many, few) if wide else (few, many), many[:2], strict=True)
    )
    return Instance(target, draft, gamma, k, prompt, length)


def far_back(
    vocabulary: int,
    certain: tuple[int, int],
    *,
    gamma: int = 1,
    k: int = 1,
    prompt: Path = (0,),
    length: int | None = None,
    seed: int = 0,
    tokens: int = 2,
) -> Instance:
    """Make models on a few tokens whose rows depend on the last tokens, up to five.

    `certain` has the share of rows with a single possible token, in eighths, for target and draft.
    """
    random = Random(seed)
    alphabet = spread(vocabulary, tokens)
    order = ORDER if len(alphabet) < 3 else 3

    def model(share: int) -> TableModel:
        rows: Rows = {(): {alphabet[0]: Fraction(1)}}
        for size in range(1, order + 1):
            for context in itertools.product(alphabet, repeat=size):
                kept = random.sample(alphabet, 1) if random.randrange(8) < share else alphabet
                rows[context] = _weights(kept, random)
        return _model(vocabulary, rows)

    return Instance(model(certain[0]), model(certain[1]), gamma, k, prompt, length)


def ladder(gamma: int) -> Instance:
    """Make models whose rows down to depth γ are reached often and have few paths.

    Each row has three tokens, and each token has another role in the next row.  One token
    continues the ladder: both models give it the same probability, so it never replaces a draft.
    The other two tokens leave the ladder; after each of these two, only one token is possible.  A
    run reaches the row after 12 drafts with probability 1/4.
    """
    # This token is only in the prompt, so that no shorter context is the context of a rung.
    start = 3
    target: Rows = {(): {0: Fraction(1)}}
    draft: Rows = {(): {0: Fraction(1)}}
    path: Path = (start,)
    for i in range(gamma + 1):
        rung, liked, other = ((i + i // 3 + role) % 3 for role in range(3))
        few = Fraction(1 + i % 2)
        target[path] = {rung: Fraction(30), liked: few, other: Fraction(2)}
        draft[path] = {rung: Fraction(30), liked: few + 2}
        path = (*path, rung)
    return Instance(_model(4, target), _model(4, draft), gamma, prompt=(start,))


def ending(end: int) -> tuple[Instance, ...]:
    """Make pairs of models for one end token, whose texts may end early, late or never.

    In one pair the draft ends texts more often than the target, in the other less often.
    """
    other = 0 if end else 1
    rows = ({end: Fraction(1), other: Fraction(2)}, {end: Fraction(3), other: Fraction(1)})
    after = {end: Fraction(1), other: Fraction(1)}
    models = [_model(max(end, other) + 1, {(): row, (other, other): after}) for row in rows]
    return tuple(
        Instance(target, draft, 2, prompt=(other,), length=4)
        for target, draft in (models, models[::-1])
    )


def stopping(stop: Sequence[Path]) -> tuple[Instance, ...]:
    """Make two pairs of models for each stop sequence; many texts contain it, or its beginning.

    In one pair the prompt ends with the first token of the sequence.
    """
    made: list[Instance] = []
    for end in stop:
        other = next(token for token in (end[-1], 0, 1) if token != end[0])
        size = max(*end, other) + 1
        models = []
        for weight in (Fraction(2), Fraction(1)):
            table: Rows = {(): {end[0]: weight, other: Fraction(1)}}
            for i, token in enumerate(end[1:], 1):
                away = end[0] if token != end[0] else other
                table[end[:i]] = {token: weight + 1, away: Fraction(2)}
            models.append(_model(size, table))
        for pair, before in zip((models, models[::-1]), (other, end[0]), strict=True):
            made.append(
                Instance(pair[0], pair[1], 2, prompt=(before,), length=max(len(end) + 1, 4))
            )
    return tuple(made)


def dense(tokens: Iterable[int]) -> tuple[Instance, ...]:
    """Make pairs of models in which the given tokens, 0 and 1 are possible after every context.

    Logits processors can exclude tokens of these models, and still leave others.
    """
    alphabet = sorted({0, 1, *tokens})
    random = Random(len(alphabet))

    def model() -> TableModel:
        contexts: list[Path] = [(), *((token,) for token in alphabet)]
        return _model(
            alphabet[-1] + 1,
            {after: {x: Fraction(random.randint(1, 6)) for x in alphabet} for after in contexts},
        )

    shapes = (((0,), 1, 3), ((1, 0), 2, 3), ((0, 1, 1), 3, 4), ((1,), 2, 5))
    few = shapes if len(alphabet) == 2 else shapes[:2]
    return tuple(
        Instance(model(), model(), gamma, prompt=prompt, length=length)
        for prompt, gamma, length in few
    )


ONE_OF_EACH_KIND = (
    *("rows differ", "two drafts, two tokens", "zeros", "three tokens"),
    *("four drafts", "five tokens back"),
)
"""Names of pairs with few tokens, for one chain."""


def renamed(instance: Instance, token: int) -> Instance:
    """Give the last token of a pair of models a new number that is not in use."""
    last = instance.vocabulary - 1

    def number(old: int) -> int:
        return token if old == last else old

    def model(table: TableModel) -> TableModel:
        rows: Rows = {
            tuple(map(number, context)): {number(x): p for x, p in enumerate(row) if p}
            for context, row in table._rows.items()
        }
        return _model(token + 1, rows)

    return replace(
        instance,
        target=model(instance.target),
        draft=model(instance.draft),
        prompt=tuple(map(number, instance.prompt)),
    )


def with_token(token: int) -> tuple[Instance, ...]:
    """Make pairs of all kinds that contain a token, from pairs without it."""
    if token < 2:
        # All pairs contain these tokens.
        return ()
    known = INSTANCES | larger_instances()
    few = (known[name] for name in ONE_OF_EACH_KIND)
    return tuple(renamed(each, token) for each in few if each.vocabulary <= token)


@cache
def larger_instances() -> dict[str, Instance]:
    """Return the larger instances by name; they are made when first needed."""
    return {
        "40 tokens": spread_out(40, wide=True),
        "40 tokens drafted": spread_out(40, wide=False),
        "48 tokens": spread_out(48, wide=True, counts=(WIDEST, 1)),
        "300 tokens": spread_out(300, wide=True, seed=1, counts=(WIDER, 1)),
        "pairs of 40 tokens": spread_out(40, wide=True, k=2, seed=2),
        "four of two tokens": far_back(2, (0, 0), k=4, seed=13),
        "four drafts": far_back(2, (2, 4), gamma=4, seed=37),
        "six drafts": far_back(2, (3, 7), gamma=6, prompt=(0, 1), seed=56),
        "twelve drafts": ladder(DEEP),
        "a prompt that repeats": far_back(
            3, (0, 8), gamma=2, prompt=(2, 0, 1, 2, 0, 1, 2), length=4, tokens=3
        ),
        "five tokens back": far_back(2, (0, 8), gamma=2, prompt=(0, 1), length=6),
        "drafts from far back": far_back(2, (4, 4), gamma=3, prompt=(1, 0, 0), length=6, seed=1),
    }


def of_size(
    vocabulary: int | None, gamma: int | None, prompt: Path | None, seed: int
) -> list[Instance]:
    """Make pairs of models of the requested sizes, for one draft and for two.

    If γ is requested, the last pair is `ladder(gamma)`.
    """
    tokens = max([(vocabulary or 2) - 1, *(prompt or (1,))]) + 1
    drafts, before = gamma or 2, (0, 1) if prompt is None else prompt
    made = []
    for k in (1, 2):
        shape: dict[str, Any] = {"gamma": drafts if k == 1 else 1, "k": k, "seed": seed}
        made += [spread_out(tokens, wide=wide, prompt=before, **shape) for wide in (True, False)]
        # Long chains whose target has no certain row would have too many continuations.
        for certain in ((0, 8), (5, 5)) if drafts <= DEEP else ((5, 5),):
            length = drafts + 2
            made.append(far_back(tokens, certain, prompt=before, length=length, **shape))
    return made if gamma is None else [*made, ladder(gamma)]
