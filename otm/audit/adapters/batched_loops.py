"""Adapter of a decoding loop over several prompts at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from otm._core.display.text import shown
from otm._core.tensors import to_host
from otm.audit.adapters.base import TOO_LONG, TOO_SHORT, Instance, as_failure, max_tokens
from otm.audit.adapters.batches import PLACES, same
from otm.audit.adapters.drafts import Replayable, as_tokens, is_exact
from otm.audit.adapters.loops import loop
from otm.audit.adapters.neighbours import (
    DEPENDENT,
    NEIGHBOURS,
    STOPPED,
    Ends,
    Neighbour,
    RowsModel,
    TwinRows,
    fault_of,
    models_of_rows,
    most_telling,
    neighbours_of,
    twins,
)
from otm.audit.instances import INSTANCES
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path


@dataclass(frozen=True)
class _Prompt:
    """A neighbour that continues another prompt with the audited models; its text is not known."""

    prompt: Path


Row = Neighbour | _Prompt | None
"""A row of a batch; None for the audited row."""


class loops(loop):
    """Audit a decoding loop f(target, draft, prompts, gamma, max_tokens, uniforms) over prompts.

    The audit decodes the prompt of its models beside two other prompts of other lengths.  The text
    of each row must follow the target, and must not depend on the other rows.  Each other row
    uses tokens of its own, and only one text is possible for it.  Therefore each run also shows
    whether these rows get the right tokens, and whether a row reads another row, padding or
    rejected drafts.

    Parameters
    ----------
    function : callable
        Function of the target model, the draft model, a list of prompts, `gamma` and `max_tokens`
        (both passed by name), and `uniforms`, a list with one source of uniforms for each prompt.
        The function returns the new tokens of each prompt, at most `max_tokens`: a list, or an
        array padded with −1 on the right.  In place of `uniforms`, the function may have another
        randomness parameter, as for `chain`, with one generator or seed for the batch.
        `model.probs(contexts)` returns the distributions [B, V] of the next token after B contexts
        of any lengths, or the distribution [V] after a single context.  For loops that call
        transformers models with padding, masks, positions and caches, convert each model by
        `otm.audit.adapters.huggingface.causal_lm`; its `config.pad_token_id` is a token for
        padding.
    **options
        `name`, `max_tokens`, `end`, `stop` and `processor`, as for `loop`.  A processor may exclude
        tokens; the other rows then continue other prompts by the same models, and their texts are
        not checked.

    Raises
    ------
    InvalidParameterError
        If the function has other parameters, or its parameters cannot be read; also for the reasons
        that `loop` names.
    MissingDependencyError
        If the function has a parameter `generator`, and torch is not installed.

    Examples
    --------
    >>> from otm.audit import lossless
    >>> from otm.audit.instances import INSTANCES
    >>> from otm.decoding import speculative
    >>> def decode(target, draft, prompts, gamma, max_tokens, uniforms):
    ...     return speculative(
    ...         target, draft, prompts, gamma=gamma, max_tokens=max_tokens, uniforms=uniforms
    ...     ).sequences
    >>> few = [INSTANCES["two tokens"]]
    >>> lossless(loops(decode, max_tokens=2), instances=few, examples=0).verdict
    'lossless on everything tried'

    This wrong loop ends all texts where the first text ends:

    >>> def stops(target, draft, prompts, gamma, max_tokens, uniforms):
    ...     texts = decode(target, draft, prompts, gamma, max_tokens, uniforms)
    ...     cut = ([*text, 1].index(1) + 1 for text in texts)
    ...     length = min(cut)
    ...     return [text[:length] for text in texts]
    >>> report = lossless(loops(stops, max_tokens=2, end=1), instances=few, examples=0)
    >>> report.verdict, report.diagnoses[0].name
    ('not lossless', 'rows stopped by another row')
    """

    longer_prompts = NEIGHBOURS

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        super().__init__(function, **options)
        if not (self.repeatable or self.ends or self.processor):
            # Rows with their own sources of uniforms cannot share draws.
            self.more = (*twins(INSTANCES["rows differ"], self.max_tokens or 4), *self.more)

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Decode the prompt alone and in batches; require equal texts, and right other rows."""
        rows = self._neighbours(instance)
        if not self.repeatable:
            # A run is then one batch, because the same uniforms cannot be used twice.  It is small,
            # because each draw of a neighbour makes the audit longer.
            if isinstance(instance.target, TwinRows):
                pair: Path = self._decode_twins(instance, instance.target, source)
                return pair
            beside = rows[-1] if self.ends else rows[0]
            text: Path = self._decode(instance, [beside, None], source)
            return text
        own = Replayable(source)
        alone: Any = self._decode(instance, [None], own)
        whole = isinstance(alone, tuple) and self._ends(instance).complete(alone)
        fault: Any = None
        for place in range(1, PLACES if whole else 1):
            own.rewind()
            beside_others = self._decode(instance, _ordered(rows, place), own)
            if same(beside_others, alone):
                continue
            now = _difference(alone, beside_others, place)
            if getattr(now, "mistake", "") not in {"", DEPENDENT}:
                # This fault has a name; a fault in an earlier place may have none.
                return now
            fault = now if fault is None else fault
        result: Path = alone if fault is None else fault
        return result

    def for_one_prompt(self) -> loop:
        """Return the adapter of the same loop over one prompt, without other rows."""
        return _Alone(self)

    def _decode_twins(self, instance: Instance, both: TwinRows, source: Randomness) -> Any:
        """Decode the same prompt in two rows; return both texts, one after the other."""
        single = replace(instance, target=both.single)
        limit = max_tokens(self, instance) // 2
        texts = self._run(single, (), [single.prompt] * 2, limit, source)
        if not isinstance(texts, list) or not all(isinstance(text, tuple) for text in texts):
            return texts
        for text in texts:
            if len(text) != limit:
                what = f"returned {len(text)} tokens, but max_tokens was {limit}"
                return as_failure(what, TOO_LONG if len(text) > limit else TOO_SHORT)
        return texts[0] + texts[1]

    def _neighbours(self, instance: Instance) -> Sequence[Row]:
        if self.processor is None:
            return neighbours_of(instance, self.ends)
        prompts, ending = [instance.prompt], {token for end in self.ends for token in end}
        for _ in range(NEIGHBOURS - 1):
            ranked = np.argsort(-instance.target.probs(prompts[-1]), kind="stable").tolist()
            token = next((x for x in ranked if x not in ending), None)
            prompts.append(prompts[-1] if token is None else (*prompts[-1], token))
        return [_Prompt(prompt) for prompt in prompts]

    def _decode(self, instance: Instance, rows: Sequence[Row], source: Randomness) -> Any:
        """Decode a batch; return the text of the audited row, or a failure of any row."""
        certain = neighbours_of(instance, self.ends) if self.processor is None else ()
        prompts = [instance.prompt if row is None else row.prompt for row in rows]
        own = rows.index(None)
        limit = max_tokens(self, instance)
        texts = self._run(instance, certain, prompts, limit, source, own)
        if not isinstance(texts, list):
            return texts
        for text in texts:
            if not isinstance(text, tuple) or not all(map(_is_token, text)):
                # The audit describes the value.
                return text
        model = models_of_rows(instance, certain, is_exact(source))[0]
        ends = self._ends(instance)
        some_complete, longest = any(map(ends.complete, texts)), max(map(len, prompts))
        faults = [
            fault_of(text, row, model, ends, some_complete, is_longest=len(prompt) == longest)
            for row, prompt, text in zip(rows, prompts, texts, strict=True)
            if not isinstance(row, _Prompt)
        ]
        fault = most_telling([fault for fault in faults if fault is not None])
        return texts[own] if fault is None else fault

    def _run(  # noqa: PLR0917
        self,
        instance: Instance,
        certain: tuple[Neighbour, ...],
        prompts: list[Path],
        limit: int,
        source: Randomness,
        own: int = 0,
    ) -> Any:
        """Call the function; return the list of texts, any other value, or a failure."""
        exact = is_exact(source)
        models = models_of_rows(instance, certain, exact)
        if self.repeatable:
            sources = [source if i == own else _stream(i, exact) for i in range(len(prompts))]
            randomness: dict[str, Any] = {"uniforms": sources}
        else:
            randomness = self._random(source, 0)
        result = self.function(
            *models, prompts, **self._drafts(instance), max_tokens=limit, **randomness
        )
        return _texts(result, models[0], len(prompts))

    def _ends(self, instance: Instance) -> Ends:
        return Ends(self.ends, max_tokens(self, instance))


class _Alone(loop):
    """A loop over several prompts that gets only one."""

    def __init__(self, several: loops) -> None:
        options: dict[str, Any] = {"max_tokens": several.max_tokens, "end": several.end}
        super().__init__(several.function, name=several.name, stop=several.stop, **options)
        self.processor, self.more, self._several = several.processor, (), several

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Decode one prompt."""
        return self._several._decode(instance, [None], source)  # type: ignore[no-any-return]


def _is_token(value: Any) -> bool:
    return isinstance(value, int | np.integer)


def _ordered(others: Sequence[Row], place: int) -> list[Row]:
    """Insert the audited row at an index of a batch."""
    return [*others[:place], None, *others[place:]]


def _texts(result: Any, model: RowsModel, size: int) -> Any:
    """Read the text of each row, without padding; return any other value, or a failure."""
    result = to_host(result)
    if isinstance(result, str) or not isinstance(result, Sequence | np.ndarray):
        return result
    if len(result) != size:
        return as_failure(f"returned {len(result)} texts for {size} prompts")
    return [_unpadded(as_tokens(text), model) for text in result]


def _unpadded(text: Any, model: RowsModel) -> Any:
    while isinstance(text, tuple) and text and model.pad is not None and text[-1] == model.pad:
        text = text[:-1]
    return text


def _stream(seed: int, exact: bool) -> Randomness:
    """Return a source of fixed uniforms, for a neighbour."""
    drawn = random.Random(seed)

    def source(m: int) -> Any:
        coins = [Fraction(2 * drawn.randrange(64) + 1, 128) for _ in range(m)]
        return np.array(coins, dtype=object if exact else np.float64)

    return source


def _difference(alone: Path, text: Any, place: int) -> Path:
    """Describe how a text changes with the other rows of a batch."""
    if not isinstance(text, tuple) or alone == text[: len(alone)]:
        # The audit describes failures and texts that are too long.
        return text  # type: ignore[no-any-return]
    what = f"its text changes with the other rows of the batch: {shown(alone)} alone, "
    what += f"{shown(text)} as row {place + 1} of {PLACES}"
    return as_failure(what, STOPPED if text == alone[: len(text)] else DEPENDENT)
