"""Adapter of a decoding loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from otm._core.display.text import shown
from otm._core.numbers import as_integer, as_positive
from otm.audit.adapters.base import Instance, max_tokens
from otm.audit.adapters.drafts import as_tokens, models_for
from otm.audit.adapters.functions import FunctionAdapter, parameters_of
from otm.audit.adapters.processed import Processing
from otm.audit.instances import CHANGING
from otm.audit.larger_instances import MOST_TOKENS, dense, ending, stopping, with_token
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.errors import InvalidParameterError


class loop(FunctionAdapter):
    """Audit a decoding loop f(target, draft, prompt, gamma, max_tokens, uniforms).

    Parameters
    ----------
    function : callable
        Function of the target model, the draft model, a prompt, `gamma` and `max_tokens` (both
        passed by name), and `uniforms`, a source of uniforms such as `rng.random`.  For each model,
        `model.probs(tokens)` is the distribution of the next token.  The function may have another
        randomness parameter, as for `chain`.  The function returns at most `max_tokens` new tokens.
        In place of `gamma`, the function may have a parameter `policy`: a function from the number
        of earlier steps to γ of the next step.  With `policy`, the audit also changes γ between
        steps.
    name : str, optional
        Name in reports.
    max_tokens : int, optional
        Number of tokens of a text; by default 3 or 4, and 6 on some instances.
    end : int, optional
        Token that ends a text.  A text must have `max_tokens` tokens, or be shorter and end with
        `end`; no token may follow `end`.  Without `end` and `stop`, each text must have
        `max_tokens` tokens.
    stop : sequence of sequences of int, optional
        Stop sequences, such as ``((3, 1), (2,))``.  A text ends with the first of them that occurs
        in the output, and contains it.  The tokens of the prompt do not count.
    processor : callable, optional
        Logits processor that the loop applies to the target, such as one of `otm.audit.processors`.
        It takes the tokens so far (a tuple: prompt and output) and the logits of the next token, a
        float64 array [V], and returns logits [V], −∞ for an excluded token.  If it has a
        parameter `prompt_length`, it also gets the length of the prompt.  The loop gets models
        without the processor, and its text must have the processed distribution.  The logits of the
        audit's models are the logarithms of their probabilities.

    Raises
    ------
    InvalidParameterError
        If the function has other parameters, or they cannot be read; if `max_tokens` is below 1; if
        `end` is not a token; if `stop` contains anything but sequences of at least one token; if
        `processor` is not callable; or, in the audit, if it returns anything but V logits.
    MissingDependencyError
        If the function has a parameter `generator`, and torch is not installed.

    Examples
    --------
    >>> from otm.decoding import speculative
    >>> def decode(target, draft, prompt, gamma, max_tokens, uniforms):
    ...     return speculative(
    ...         target, draft, [prompt], gamma=gamma, max_tokens=max_tokens, uniforms=[uniforms]
    ...     ).sequences[0]
    >>> loop(decode, max_tokens=2).max_tokens
    2

    A loop that must not write token 1 samples from the processed rows of the target:

    >>> import numpy as np
    >>> from otm.audit import lossless, processors
    >>> no_ones = processors.bad_words([(1,)])
    >>> def decode(target, draft, prompt, gamma, max_tokens, uniforms):
    ...     text = tuple(prompt)
    ...     for _ in range(max_tokens):
    ...         logits = np.log(target.probs(text).astype(float))
    ...         weights = np.exp(no_ones(text, logits)).cumsum()
    ...         token = np.searchsorted(weights, uniforms(1)[0] * weights[-1], side="right")
    ...         text = (*text, int(token))
    ...     return text[len(prompt) :]
    >>> from otm.audit.instances import INSTANCES
    >>> few = [INSTANCES["rows differ"]]
    >>> lossless(loop(decode, processor=no_ones), instances=few, examples=0).verdict
    'lossless on everything tried'
    """

    before = 5
    loops = True

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        max_tokens: int | None = None,
        end: int | None = None,
        stop: Sequence[Sequence[int]] = (),
        processor: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(function, name=name)
        self.max_tokens = None if max_tokens is None else as_positive(max_tokens, "max_tokens")
        self.has_policy = "policy" in parameters_of(function)
        self.more = CHANGING if self.has_policy else ()
        if end is not None:
            self.end, more = as_end(end)
            self.more = (*more, *self.more)
        self.stop = _as_stop(stop)
        self.more = (*stopping(self.stop), *self.more)
        if processor is not None:
            self.processor = Processing(processor)
            tokens = {token for end in self.ends for token in end}
            self.more = (*dense({*self.processor.tokens, *tokens}), *self.more)

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Decode until the limit."""
        randomness = {"uniforms": source} if self.repeatable else self._random(source, 0)
        limit = max_tokens(self, instance)
        models = models_for(instance, source)
        options = {**self._drafts(instance), "max_tokens": limit, **randomness}
        return as_tokens(self.function(*models, instance.prompt, **options))

    def _drafts(self, instance: Instance) -> dict[str, Any]:
        """Return the argument that states the numbers of drafts."""
        return {"policy": instance.gamma_at_step} if self.has_policy else {"gamma": instance.gamma}


def as_end(end: Any) -> tuple[int, tuple[Instance, ...]]:
    """Check an end token; return it, and pairs of models that contain it."""
    token = as_integer(
        end, "end", 0, MOST_TOKENS - 1, advice="give a token of the audit's small models"
    )
    return token, (*ending(token), *with_token(token))


def _as_stop(stop: Any) -> tuple[Path, ...]:
    """Check stop sequences: sequences of at least one token of the audit's models."""
    advice = "give a tuple of token sequences, such as ((3, 1), (2,))"
    if isinstance(stop, str) or not isinstance(stop, Sequence):
        raise InvalidParameterError(f"stop = {shown(stop)}; {advice}")
    for each in stop:
        if isinstance(each, str) or not isinstance(each, Sequence) or not each:
            raise InvalidParameterError(f"stop contains {shown(each)}; {advice}")
    limit = MOST_TOKENS - 1
    return tuple(
        tuple(as_integer(token, "stop", 0, limit, advice=advice) for token in each) for each in stop
    )
