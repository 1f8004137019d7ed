"""Drafts as they should be: sampled from the very laws that the verifier is then shown."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Law, read_only
from otm._core.sampling import InverseCdf
from otm.audit.adapter import Instance
from otm.decoding.drafting import Randomness
from otm.decoding.reading import Path
from otm.models.base import StatelessModel
from otm.models.table import TableModel


def draw_chain(instance: Instance, source: Randomness) -> Path:
    """Draw a chain of γ drafts, a uniform each: exact with symbolic uniforms, fast with floats."""
    drafts: Path = ()
    uniforms = source(instance.gamma)
    exact = uniforms.dtype == object
    for i in range(instance.gamma):
        cdf = _cdf(instance.draft, instance.prompt + drafts, exact)
        drafts = (*drafts, int(cdf.locate(uniforms[i : i + 1])[0]))
    return drafts


def chain_laws(instance: Instance, drafts: Path, exact: bool) -> tuple[Law, Law]:
    """Return the target's probs [γ + 1, V] and the draft's [γ, V] along a chain of drafts.

    Target row i follows the prompt and i drafts.  Both are copies: a verifier may write into them.
    """
    target, draft = _chain_laws(instance, drafts, exact)
    return target.copy(), draft.copy()


class InFloats(StatelessModel):
    """A table of fractions as a model in floats."""

    def __init__(self, table: TableModel) -> None:
        self.vocabulary = table.vocabulary
        self._table = table

    def probs(self, context: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Law of the token that follows a context: array [V]."""
        return _law(self._table, context, False)


def models_for(instance: Instance, exact: bool) -> tuple[StatelessModel, StatelessModel]:
    """Target and draft model in fractions or in floats."""
    if exact:
        return instance.target, instance.draft
    return InFloats(instance.target), InFloats(instance.draft)


@lru_cache(maxsize=4096)
def _law(model: TableModel, context: tuple[int, ...], exact: bool) -> Law:
    law = model.probs(context)
    return law if exact else read_only(law.astype(np.float64))


@lru_cache(maxsize=4096)
def _cdf(model: TableModel, context: tuple[int, ...], exact: bool) -> InverseCdf:
    return InverseCdf.from_weights(_law(model, context, exact))


@lru_cache(maxsize=4096)
def _chain_laws(instance: Instance, drafts: Path, exact: bool) -> tuple[Law, Law]:
    prefixes = [instance.prompt + drafts[:i] for i in range(len(drafts) + 1)]
    target = np.array([_law(instance.target, prefix, exact) for prefix in prefixes])
    draft = np.array([_law(instance.draft, prefix, exact) for prefix in prefixes[:-1]])
    return target, draft
