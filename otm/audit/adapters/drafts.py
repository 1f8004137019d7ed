"""Draw drafts from the distributions that a verifier sees, and read the verifier's tokens."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, read_only
from otm._core.probs.sampling import InverseCdf
from otm._core.tensors import to_host
from otm.audit.adapters.base import Adapter, Instance, Source
from otm.audit.adapters.processed import raw
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.models.base import StatelessModel
from otm.models.table import TableModel

PADDING = -1


def is_exact(source: Randomness) -> bool:
    """Whether a source returns symbolic uniforms, which require probabilities in fractions."""
    return source(0).dtype == object


class Replayable:
    """A source that repeats its uniforms after `rewind`, and draws new ones after these."""

    def __init__(self, source: Randomness) -> None:
        self._source, self._taken, self._place = source, source(0), 0

    def __call__(self, m: int) -> npt.NDArray[Any]:
        """Return the next m uniforms."""
        self._place += m
        if self._place > len(self._taken):
            new = self._source(self._place - len(self._taken))
            self._taken = np.append(self._taken, new)
        return self._taken[self._place - m : self._place].copy()

    def rewind(self) -> None:
        """Return to the first uniform."""
        self._place = 0


def locate_drafts(cdf: InverseCdf, uniforms: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Draw drafts by uniforms; for symbolic uniforms, avoid the isolated values of `searchsorted`.

    The drafts at isolated values also occur at other uniforms, so separate paths for isolated
    values would be wasted.
    """
    if uniforms.dtype != object:
        return cdf.locate(uniforms)
    places = [bisect_right(cdf.cumulative, u) for u in uniforms * cdf.ends[-1]]
    return cdf.tokens[np.minimum(places, cdf.tokens.size - 1)]


@dataclass(frozen=True)
class _Steps:
    """A distribution, stored in lists for speed; one uniform draws one token from it."""

    tokens: list[int]
    # Upper ends of the cells of [0, 1).
    ends: tuple[Number, ...]

    def draw(self, source: Randomness) -> int:
        """Draw a token by the next uniform."""
        cell = getattr(source, "cell", None)
        place = bisect_right(self.ends, source(1)[0]) if cell is None else cell(self.ends)
        return self.tokens[min(place, len(self.tokens) - 1)]


def draw_chain(instance: Instance, source: Randomness) -> Path:
    """Draw γ drafts, each by one uniform: exactly for symbolic uniforms, fast for floats."""
    drafts: Path = ()
    exact = is_exact(source)
    for _ in range(instance.gamma):
        steps = _steps(instance.draft, instance.prompt + drafts, exact)
        drafts = (*drafts, steps.draw(source))
    return drafts


def chain_probs(instance: Instance, drafts: Path, exact: bool) -> tuple[Probs, Probs]:
    """Return target probabilities [γ + 1, V] and draft probabilities [γ, V] along a chain.

    Target row i follows the prompt and i drafts.  Both arrays are copies, because a verifier may
    write into them.
    """
    target, draft = _chain_probs(instance, drafts, exact)
    return target.copy(), draft.copy()


class InFloats(StatelessModel):
    """A table of fractions as a model in floats."""

    def __init__(self, table: TableModel) -> None:
        self.vocabulary = table.vocabulary
        self.longest_context = table.order
        self.in_fractions = table

    def probs(self, context: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Return the distribution of the token after a context, an array [V]."""
        return probs_of(self.in_fractions, tuple(context), False)


def models_for(instance: Instance, source: Randomness) -> tuple[StatelessModel, StatelessModel]:
    """Return the target and draft model, in fractions for symbolic uniforms, else in floats.

    Neither model is processed: a loop with a processor applies it itself.
    """
    target = raw(instance.target)
    if is_exact(source):
        return target, instance.draft
    return _in_floats(target), _in_floats(instance.draft)


@lru_cache(maxsize=256)
def _in_floats(table: TableModel) -> InFloats:
    """Return the same float model for the same table, because adapters cache values by model."""
    return InFloats(table)


@lru_cache(maxsize=4096)
def probs_of(model: TableModel, context: tuple[int, ...], exact: bool) -> Probs:
    """Return the distribution [V] after a context, in fractions or in floats."""
    probs = model.probs(context)
    return probs if exact else read_only(probs.astype(np.float64))


@lru_cache(maxsize=4096)
def _steps(model: TableModel, context: tuple[int, ...], exact: bool) -> _Steps:
    probs = probs_of(model, context, exact)
    tokens = np.flatnonzero(probs > 0)
    cumulative = np.cumsum(probs[tokens]).tolist()
    return _Steps(tokens.tolist(), tuple(end / cumulative[-1] for end in cumulative))


@lru_cache(maxsize=4096)
def _chain_probs(instance: Instance, drafts: Path, exact: bool) -> tuple[Probs, Probs]:
    prefixes = [instance.prompt + drafts[:i] for i in range(len(drafts) + 1)]
    target = np.array([probs_of(instance.target, prefix, exact) for prefix in prefixes])
    draft = np.array([probs_of(instance.draft, prefix, exact) for prefix in prefixes[:-1]])
    return target, draft


def as_tokens(result: Any) -> Path:
    """Read tokens [n] from a list, an array or a tensor, without the padding −1 at the end.

    From a tuple (tokens, number accepted), return the accepted tokens and one more.  Values of
    other types are returned unchanged, and the audit reports them.
    """
    if isinstance(result, tuple) and len(result) == 2 and np.ndim(to_host(result[0])) == 1:
        tokens, accepted = (np.asarray(to_host(part)) for part in result)
        if accepted.size != 1 or accepted.dtype.kind not in "iu":
            return result
        return tuple(tokens[: int(accepted.item()) + 1].tolist())
    array = np.asarray(to_host(result))
    if array.ndim != 1:
        return result  # type: ignore[no-any-return]
    tokens = array.tolist()
    while tokens and tokens[-1] == PADDING:
        tokens.pop()
    return tuple(tokens)


BatchVerifier = Callable[[Any, Any, Any, Any], Any]
"""Function of target probs [B, γ + 1, V], draft probs [B, γ, V], drafts [B, γ] and uniforms [B, m].

The function returns, for each run, a result that `as_tokens` can read.  With K chains, the first
three arrays have an axis K after B.
"""


@dataclass(frozen=True, eq=False)
class Batched(Adapter):
    """Adapter of a kernel or another verifier of batches of chains."""

    verify: BatchVerifier
    name: str
    # Function of γ and k that returns the number of uniforms m of one run.
    uniforms: Callable[[int, int], int] = lambda gamma, k: 1
    several: bool = False
    exact: bool = False
    repeatable: bool = True

    def drafted(self, instance: Instance, source: Randomness) -> Path | tuple[Path, ...]:
        """Draw the same drafts as `output`."""
        chains = tuple(draw_chain(instance, source) for _ in range(instance.k))
        return chains if self.several else chains[0]

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draw drafts, then verify them."""
        return self._run(instance, [source])[0]

    def outputs(self, instance: Instance, uniforms: npt.NDArray[np.float64]) -> Sequence[Path]:
        """Draw drafts for each run, then verify all runs together."""
        return self._run(instance, [Source(row) for row in uniforms])

    def _run(self, instance: Instance, sources: Sequence[Randomness]) -> list[Path]:
        drafts = [[draw_chain(instance, source) for _ in range(instance.k)] for source in sources]
        exact = is_exact(sources[0])
        rows = [[chain_probs(instance, chain, exact) for chain in chains] for chains in drafts]
        target, draft = (
            np.array([[both[part] for both in chains] for chains in rows]) for part in (0, 1)
        )
        tokens = np.array(drafts, dtype=np.int64)
        count = self.uniforms(instance.gamma, instance.k)
        uniforms = np.array([source(count) for source in sources])
        if not self.several:
            target, draft, tokens = target[:, 0], draft[:, 0], tokens[:, 0]
        return [as_tokens(row) for row in self.verify(target, draft, tokens, uniforms)]


def seed_of(uniforms: npt.NDArray[np.float64]) -> int:
    """Return a seed for another library's generator, from the first uniform."""
    return int(uniforms.flat[0] * 2**53)
