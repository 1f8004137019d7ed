"""Test cases for the self-check of kernels that verify chains, in the layout of a call's tensors.

The cases are drawn from a fixed seed.  Only a few tokens have a positive probability: the first and
last tokens, those next to the boundaries of blocks, and some between.  Probabilities are multiples
of 1/128, and logits are multiples of 1/4; all types represent both exactly.  All backends therefore
add the same integers for probabilities, and their softmaxes differ by at most 10^−6.  Every uniform
is much more than 10^−6 away from values that would change a decision;
tests/kernels/self_check/test_cases.py computes this distance.

Some chains are accepted as a whole, some are rejected at once, and some are accepted in part.  Some
chains are shorter than γ, or empty.  If temperatures differ, some sequences are greedy.  Rows that
no backend may read are NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from otm.kernels.common import runtime
from otm.kernels.layout import Chains
from otm.kernels.registry import uniforms_per_position
from otm.kernels.self_check.call_layout import (
    layout_of,
    numbers_like,
    rows_like,
    size_class,
    temperatures_like,
)
from otm.kernels.self_check.run import Call
from otm.kernels.sparse_drafts import SparseDrafts

SEQUENCES = 24
"""Number of sequences; sequence b has the kind b mod `KINDS`."""

KINDS = 6
SEED = 1
PARTS = 128
"""Denominator of all probabilities."""

ACCEPTED, REJECTED, GREEDY, SHORT, HALF, ONE = range(KINDS)
"""Kinds of sequences.

In `ACCEPTED` all drafts are accepted, in `REJECTED` all are rejected, and in `HALF` all drafts
after the first half are rejected.  In `ONE` one draft is accepted at each node.  `GREEDY` sequences
are greedy if temperatures differ, and `SHORT` sequences have chains shorter than γ.
"""

EMPTY = KINDS + SHORT
"""Index of a sequence without drafts."""

ALIKE = 0.5
"""Probability with which a chain copies a draft of the previous chain."""

MOST_ENTRIES = 2**25
"""Largest number of entries that are built at once, unless a single sequence has more."""

FAR_BELOW = -40.0
"""Logit of impossible tokens in the first half of the sequences; the second half has −∞."""

Numbers = npt.NDArray[Any]


class Shape(NamedTuple):
    """Sizes and kinds of inputs of the test cases for a call."""

    chains: int
    gamma: int
    target_tokens: int  # tokens with a probability; drafts are among the first
    draft_tokens: int
    coins: int  # number of uniforms at each position
    target_logits: bool = False
    draft_logits: bool = False
    one_temperature: bool = True
    rows_shared: bool = False  # whether all chains share their rows
    counted: bool = False


class Cases(NamedTuple):
    """Chains of n sequences; `tokens` are indices in the list of possible tokens."""

    target: Numbers  # [n, K, γ + 1, S]
    draft: Numbers  # [n, K, γ, D]
    tokens: Numbers  # int [n, K, γ]
    uniforms: Numbers  # [n, γ coins + 2]
    temperatures: Numbers  # [n]
    counted: Numbers  # bool [n, K, γ]


def call_of_chains(rule: str, chains: Chains, verify: Callable[..., Any]) -> Call:
    """Return the `Call` for chains; `verify` takes a backend, chains and a workspace."""
    target, draft, tokens, uniforms, temperature, offsets, counted, _ = chains
    if isinstance(temperature, Tensor):
        temperature = temperature.expand(len(uniforms))
    lists = draft if isinstance(draft, SparseDrafts) else (draft,)
    temperatures = temperature if isinstance(temperature, Tensor) else None
    size = target.shape[-1]
    numbers = (size, chains.draft_size, chains.chains, len(lists), size_class(chains.gamma))
    tensors = (target, *lists, tokens, uniforms, temperatures, offsets, counted)
    family = (rule, chains.kind, target.device, *numbers, *map(layout_of, tensors))
    name = (
        f"rule {rule!r} from {chains.kind} ({target.dtype}, {size:,} tokens, {chains.gamma} drafts)"
    )
    cases = partial(cases_like, rule, chains._replace(temperature=temperature))
    return Call(name, family, target.device, cases, verify)


def cases_like(rule: str, call: Chains) -> Iterator[Chains]:
    """Yield test cases with the layout of a call's chains."""
    places = support(call.target.shape[-1], call.draft_size)
    drafted = sum(place < call.draft_size for place in places)
    sparse, logits = isinstance(call.draft, SparseDrafts), call.kind != "probabilities"
    rows = [x for x in (call.target, call.draft) if isinstance(x, Tensor)]
    shape = Shape(
        chains=max(call.chains, 1),
        gamma=call.gamma,
        target_tokens=len(places),
        draft_tokens=min(drafted, call.draft.tokens.shape[-1]) if sparse else drafted,
        coins=uniforms_per_position(rule, max(call.chains, 1)),
        target_logits=logits,
        draft_logits=logits and not sparse,
        one_temperature=not isinstance(call.temperature, Tensor) or not call.temperature.stride(0),
        rows_shared=call.chains > 1 and not all(x.stride(1) for x in rows),
        counted=call.counted is not None,
    )
    cases = draw_cases(shape)
    entries = 2 * (call.gamma + 1) * shape.chains * call.target.shape[-1]
    for part, other in split_rows(entries, call.kind):
        yield lay_out(Cases(*(x[part] for x in cases)), call, places, other)


def split_cases(entries: int, at_most: int = SEQUENCES) -> Iterator[slice]:
    """Yield slices of sequences that are built at once; `entries` is the size of one sequence."""
    part = max(1, min(at_most, MOST_ENTRIES // max(entries, 1)))
    yield from (slice(start, start + part) for start in range(0, SEQUENCES, part))


def split_rows(entries: int, kind: str) -> Iterator[tuple[slice, float]]:
    """Yield slices of sequences that are built at once, and the value of impossible tokens."""
    for part in split_cases(entries, SEQUENCES // 2):
        first_half = part.start < SEQUENCES // 2
        softmax = FAR_BELOW if first_half else -np.inf
        yield part, {"probabilities": 0.0, "logits": softmax}.get(kind, -np.inf)


def support(size: int, draft_size: int) -> list[int]:
    """Return the tokens that have a positive probability."""
    block = runtime.BLOCK
    edges = (block // 2 - 1, block // 2, block - 1, block)
    ends = (0, 1, draft_size - 2, draft_size - 1, size - 2, size - 1)
    inside = (size // 7, size // 3, size // 2, 2 * size // 3)
    return sorted({x for x in (*edges, *ends, *inside) if 0 <= x < size})


def draw_cases(shape: Shape) -> Cases:
    """Draw chains with the rows of their prefixes, and uniforms, from the seed."""
    rng = np.random.default_rng(SEED)
    count, gamma = shape.chains, shape.gamma
    target = np.full((SEQUENCES, count, gamma + 1, shape.target_tokens), np.nan)
    draft = np.full((SEQUENCES, count, gamma, shape.draft_tokens), np.nan)
    tokens = np.full((SEQUENCES, count, gamma), -1)
    counted = np.ones(tokens.shape, bool)
    uniforms = rng.random((SEQUENCES, gamma * shape.coins + 2))
    coins = uniforms[:, :-2].reshape(SEQUENCES, gamma, shape.coins)
    choose_coins(coins)
    temperatures = draw_temperatures(shape.target_logits and not shape.one_temperature)
    for b in range(SEQUENCES):
        rows: dict[tuple[int, ...], tuple[Numbers, Numbers]] = {}
        for c in range(count):
            length = gamma * (b != EMPTY)
            if b % KINDS == SHORT:
                length = max(gamma - (b + c) % 2, 0)
            if temperatures[b] == 0 and c:  # all chains of a greedy sequence are equal
                length = 0
            for i in range(gamma + 1 if shape.rows_shared else length + 1):
                prefix = (i,) if shape.rows_shared else tuple(tokens[b, c, :i].tolist())
                if prefix not in rows:
                    of_target = draw_row(rng, shape.target_tokens, logits=shape.target_logits)
                    # The two largest logits are equal; the first is the greedy token.
                    if temperatures[b] == 0:
                        of_target[int(rng.integers(len(of_target)))] = of_target.max()
                        of_target[-1] = of_target.max()
                    of_draft = draw_row(rng, shape.draft_tokens, logits=shape.draft_logits)
                    rows[prefix] = of_target, of_draft
                target[b, c, i] = rows[prefix][0]
                if i < (gamma if shape.rows_shared else length):
                    draft[b, c, i] = rows[prefix][1]
                if i < length:
                    target_probs = target[b, c, i, : shape.draft_tokens]
                    rejected = is_rejected(b, i, gamma, last=c == count - 1)
                    tokens[b, c, i] = draw_draft(
                        rng, draft[b, c, i] - target_probs, rejected=rejected
                    )
                    # Greedy sequences draft the most probable token, except at the last position.
                    if temperatures[b] == 0 and i + 1 < gamma:
                        tokens[b, c, i] = target_probs.argmax()
                    before = tokens[b, c - 1, i] if c else -1
                    counted[b, c, i] = before < 0 or i > 0 or c % 2 == 0 or not shape.counted
                    alike = rng.random() < ALIKE and b % KINDS != ONE
                    if before >= 0 and (alike or not counted[b, c, i]):
                        tokens[b, c, i] = before  # chains agree more often than by chance
    return Cases(target, draft, tokens, uniforms, temperatures, counted)


def is_rejected(sequence: int, step: int, most: int, *, last: bool) -> bool:
    """Whether to reject a draft; `last` marks the last draft of its node."""
    kind = sequence % KINDS
    if kind == ONE:
        return not last or step == most - 1
    return kind == REJECTED or (kind == HALF and step >= most // 2)


def draw_draft(rng: np.random.Generator, excess: Numbers, *, rejected: bool) -> int:
    """Draw a token, or return the one with the largest excess of draft over target."""
    return int(excess.argmax() if rejected else rng.integers(len(excess)))


def choose_coins(coins: Numbers) -> None:
    """Change uniforms [n, γ, m] to accept or reject most drafts as their kind requires."""
    sequences, most, drafts = coins.shape
    for b, i, m in np.ndindex(sequences, most, drafts):
        if is_rejected(b, i, most, last=m == drafts - 1):
            coins[b, i, m] = 0.8 + 0.2 * coins[b, i, m]
        elif b % KINDS in {ACCEPTED, HALF, ONE}:
            coins[b, i, m] *= 0.1


def draw_temperatures(several: bool) -> Numbers:
    """Return a temperature for each sequence: 1, and if `several` also 0 and 2."""
    temperatures = np.ones(SEQUENCES)
    if several:
        temperatures[GREEDY::KINDS], temperatures[SHORT::KINDS] = 0, 2
    return temperatures


def draw_row(rng: np.random.Generator, count: int, *, logits: bool) -> Numbers:
    """Draw a row of `count` possible tokens."""
    if logits:
        return np.asarray(rng.integers(-12, 9, count) / 4)
    weights = rng.multinomial(PARTS - count, rng.dirichlet(np.full(count, 0.7))) + 1
    return np.asarray(weights / PARTS)


def lay_out(cases: Cases, call: Chains, places: list[int], other: float) -> Chains:
    """Convert cases to tensors with a call's layout; impossible tokens have the value `other`."""
    target, draft = cases.target, cases.draft
    tokens = np.where(cases.tokens < 0, -1, np.array(places)[cases.tokens])
    offsets, counted = None, None
    if not call.chains:
        target, draft, tokens = target[:, 0], draft[:, 0], tokens[:, 0]
    if call.offsets is not None:
        drafted = tokens >= 0
        lengths = drafted.sum(1)
        offsets = numbers_like(call.offsets, np.append(0, lengths.cumsum()))
        target = target[np.arange(target.shape[1]) <= lengths[:, None]]
        tokens, draft = tokens[drafted], draft[drafted]
    if call.counted is not None:
        counted = numbers_like(call.counted, cases.counted)
    rows: Any = None
    if isinstance(call.draft, SparseDrafts):
        rows = list_rows(call.draft, draft, places)
    elif call.draft is not None:
        rows = rows_like(call.draft, draft, places[: draft.shape[-1]], other)
    temperature = call.temperature
    if temperature is not None:
        temperature = temperatures_like(temperature, cases.temperatures)
    return Chains(
        rows_like(call.target, target, places, other),
        rows,
        numbers_like(call.tokens, tokens),
        numbers_like(call.uniforms, cases.uniforms),
        temperature,
        offsets,
        counted,
        call.sigmoid,
    )


def list_rows(
    drafts: SparseDrafts[Tensor], rows: Numbers, places: list[int]
) -> SparseDrafts[Tensor]:
    """Convert rows [..., D] to lists of tokens in reverse order, after padding."""
    width, count = drafts.tokens.shape[-1], rows.shape[-1]
    listed = np.full((*rows.shape[:-1], width), -1)
    probs = np.full(listed.shape, np.nan)
    listed[..., width - count :] = places[:count][::-1]
    probs[..., width - count :] = rows[..., ::-1]
    return SparseDrafts(numbers_like(drafts.tokens, listed), numbers_like(drafts.probs, probs))
