"""Compare two greedy texts, and decide whether rounding explains their first difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.display.text import shown
from otm._core.numbers import whole
from otm._core.tensors import is_tensor, to_host
from otm.audit.report import UNDECIDED
from otm.errors import InvalidInputError
from otm.models.base import LanguageModel, check_length
from otm.models.huggingface.model import HuggingFaceModel

IDENTICAL = "identical"
EXPLAINED = "explained by rounding"
NOT_EXPLAINED = "not explained"

BATCHES = 2, 4, 8
"""Batch sizes of the passes on equal rows."""

LENGTHS = 1, 2, 3, 5, 9
"""Numbers of tokens in a pass, for the passes that continue the prompt from a cache."""

TOP = 16
"""Number of tokens whose logits are compared between passes: the largest of the first pass."""

CERTAIN = 4.0
"""Multiple of the observed rounding from which a margin is not explained."""


@dataclass(frozen=True)
class GreedyComparison:
    """Verdict about two greedy texts, based on their first different token.

    Parameters
    ----------
    verdict : str
        "identical", "explained by rounding", "not explained" or "undecided".
    position : int or None
        Index of the first different token in both texts; None if the texts are identical.
    plain, speculative : int or None
        The tokens of the two texts at `position`; None for a text that ends there.
    margin : float
        The distance of the lower logit of the two tokens from the largest logit, in the pass with
        the smallest distance; infinite if a text ends early.
    rounding : float
        The largest change in the difference of two logits from one pass to another.
    passes : int
        Number of forward passes that were compared.

    Examples
    --------
    >>> GreedyComparison("not explained", 3, 5, 7, 0.5, 1e-6, 11).is_fault
    True
    """

    verdict: str
    position: int | None = None
    plain: int | None = None
    speculative: int | None = None
    margin: float = 0.0
    rounding: float = 0.0
    passes: int = 0

    @property
    def is_fault(self) -> bool:
        """Whether rounding does not explain the difference, so that a text is not greedy."""
        return self.verdict == NOT_EXPLAINED

    def __str__(self) -> str:
        """Write the verdict and its numbers on one line."""
        if self.position is None:
            return self.verdict
        tokens = f"token {self.position} is {_name(self.plain)} and {_name(self.speculative)}"
        if not self.passes:
            return f"{self.verdict}: {tokens}"
        return (
            f"{self.verdict}: {tokens}, margin {self.margin:.2g}, rounding {self.rounding:.2g} in "
            f"{self.passes} passes"
        )


def compare_greedy(
    model: LanguageModel,
    prompt: Sequence[int],
    plain: Sequence[int],
    speculative: Sequence[int],
) -> GreedyComparison:
    """Compare two greedy texts, and decide whether rounding explains their first difference.

    Logits after the same tokens differ between forward passes, because the order of additions, and
    so their rounding, differs.  So correct decoders can choose different tokens where two logits
    are nearly equal.  This function repeats the forward pass in several ways: unchanged, in batches
    of 2 to 8 rows, without a cache, and on 1 to 9 tokens after a cache.

    Parameters
    ----------
    model : LanguageModel
        The target, in the type and on the device that made the texts.
    prompt : sequence of int
        Tokens before both texts, at least one.
    plain, speculative : sequence of int
        The new tokens without and with drafts, at temperature 0 and with the same limit on new
        tokens.

    Returns
    -------
    GreedyComparison
        The verdict, with the first different tokens, the margin and the rounding.

    Raises
    ------
    InvalidInputError
        If the model is not a LanguageModel, or a token is not in its vocabulary.

    Notes
    -----
    Let ``l_w(x)`` be the logit of token x in pass w at the first difference, where the texts have
    the tokens a and b.  The *margin* is the minimum over w of ``max_y l_w(y) − min(l_w(a),
    l_w(b))``.  The *rounding* ρ is the maximum over passes v, w and tokens x, y of ``|(l_w(x) −
    l_w(y)) − (l_v(x) − l_v(y))|``, where x and y are a, b or among the 16 largest logits of the
    first pass; ρ is at least one unit in the last place of these logits.

    If both texts took the largest logit of their own pass, and no two passes differ by more than ρ,
    then the margin is at most ρ.  For such a margin the verdict is "explained by rounding".  A few
    passes can miss a larger rounding, so the verdict is "not explained" only if the margin is above
    4ρ, and "undecided" if it is between ρ and 4ρ.  If one text is a prefix of the other, the
    verdict is "not explained".

    Tokens after the first difference follow different texts, so they are not compared.  A fault
    that changes tokens only where logits are nearly equal remains unseen.

    Examples
    --------
    >>> from otm.models import TableModel
    >>> model = TableModel({(): [0.2, 0.5, 0.3]})
    >>> print(compare_greedy(model, [0], [1, 1, 1], [1, 1, 2]))
    not explained: token 2 is 1 and 2, margin 0.51, rounding 3.6e-16 in 10 passes
    >>> print(compare_greedy(model, [0], [1, 1, 1], [1, 1, 1]))
    identical
    """
    if not isinstance(model, LanguageModel):
        raise InvalidInputError(
            f"the model is a {type(model).__name__}; give a LanguageModel, such as "
            "HuggingFaceModel(model)"
        )
    names = "the prompt", "the plain text", "the speculative text"
    texts = zip(names, (prompt, plain, speculative), strict=True)
    start, one, two = (_tokens(text, name, model.vocabulary) for name, text in texts)
    if not start:
        raise InvalidInputError("the prompt is empty; give at least one token")
    same = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), None)
    if same is None:
        if len(one) == len(two):
            return GreedyComparison(IDENTICAL)
        end = min(len(one), len(two))
        mine, other = (text[end] if end < len(text) else None for text in (one, two))
        return GreedyComparison(NOT_EXPLAINED, end, mine, other, margin=np.inf)
    after = two[same : same + max(LENGTHS)]
    scores = list(_passes(model, start, one[:same], after))
    logits = np.array([_as_logits(row, model.returns_probs) for row in scores])
    margin, rounding = margin_and_rounding(logits, [one[same], two[same]])
    rounding = max(rounding, _unit(scores[0], logits))
    verdict = verdict_of(margin, rounding)
    return GreedyComparison(verdict, same, one[same], two[same], margin, rounding, len(scores))


def _passes(
    model: LanguageModel, prompt: list[int], common: list[int], after: list[int]
) -> Iterator[Any]:
    """Yield the scores [V] of the token after `prompt` and `common`, from several passes."""
    text = [*prompt, *common]
    check_length(len(text) + len(after), model.context_length)
    models = [model]
    if isinstance(model, HuggingFaceModel):
        # transformers itself runs a text without a cache by other kernels
        models.append(HuggingFaceModel(model.model, vocabulary=model.vocabulary, cache=False))
    for one in (*models, model):
        # the first model runs twice, since a repeated pass can also round differently
        yield one.start(1).append(np.array([text]))[0][-1]
    for batch in BATCHES:
        session = model.start(batch)
        if len(text) > 1:
            session.read(np.tile(text[:-1], (batch, 1)))
        yield session.append(np.tile(text[-1:], (batch, 1)))[-1][-1]
    for length in LENGTHS:
        session = model.start(1)
        # the pass that reads the last common token also reads drafts after it, as verification does
        rest = [*text[len(prompt) - 1 :], *after[: length - 1]]
        if len(prompt) > 1:
            session.read(np.array([prompt[:-1]]))
        for begin in range(0, len(common) + 1, length):
            part = np.array([rest[begin : begin + length]])
            if begin + length > len(common):
                yield session.append(part)[0][len(common) - begin]
                break
            session.append(part)


def _as_logits(scores: object, are_probs: bool) -> npt.NDArray[np.float64]:
    values = np.asarray(to_host(scores), dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.log(values) if are_probs else values


def verdict_of(margin: float, rounding: float) -> str:
    """Compare a margin with the rounding, as `compare_greedy` does."""
    if margin > CERTAIN * rounding:
        return NOT_EXPLAINED
    return EXPLAINED if margin <= rounding else UNDECIDED


def margin_and_rounding(logits: npt.NDArray[np.float64], tokens: list[int]) -> tuple[float, float]:
    """Return margin and rounding, as `compare_greedy` defines them, from logits [W, V]."""
    margin = float((logits.max(1) - logits[:, tokens].min(1)).min())
    top = np.argsort(-logits[0], kind="stable")[:TOP]
    compared = logits[:, np.union1d(top, tokens)]
    # an impossible token has no difference to round
    compared = compared[:, np.isfinite(compared).all(0)]
    change = compared[:, None] - compared[None]
    return margin, float((change.max(-1) - change.min(-1)).max()) if change.size else 0.0


def _unit(scores: Any, logits: npt.NDArray[np.float64]) -> float:
    """Return one unit in the last place of the largest finite logit, in the type of the scores."""
    largest = float(np.abs(logits[np.isfinite(logits)]).max(initial=0.0))
    if is_tensor(scores):
        import torch

        return largest * float(torch.finfo(scores.dtype).eps)
    values = np.asarray(scores)
    kind = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
    return largest * float(np.finfo(kind).eps)


def _tokens(values: Sequence[int], name: str, vocabulary: int) -> list[int]:
    """Return tokens as integers; raise if one is not in the vocabulary."""
    tokens = [whole(value) for value in values]
    if not all(token is not None and 0 <= token < vocabulary for token in tokens):
        raise InvalidInputError(
            f"{name} is {shown(values)}; give token ids from 0 to {vocabulary - 1}"
        )
    return [token for token in tokens if token is not None]


def _name(token: int | None) -> str:
    return "the end" if token is None else str(token)
