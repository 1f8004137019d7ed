"""Adapter of a decoding loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otm._core.numbers import as_integer, as_positive
from otm.audit.adapters.base import Instance, max_tokens
from otm.audit.adapters.drafts import as_tokens, models_for
from otm.audit.adapters.functions import FunctionAdapter, parameters_of
from otm.audit.instances import CHANGING
from otm.audit.larger_instances import MOST_TOKENS, ending, with_token
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path


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
        `end`; no token may follow `end`.  Without `end`, each text must have `max_tokens` tokens.

    Raises
    ------
    InvalidParameterError
        If the function has other parameters, or they cannot be read; if `max_tokens` is below 1; or
        if `end` is not a token.
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
    ) -> None:
        super().__init__(function, name=name)
        self.max_tokens = None if max_tokens is None else as_positive(max_tokens, "max_tokens")
        self.has_policy = "policy" in parameters_of(function)
        self.more = CHANGING if self.has_policy else ()
        if end is not None:
            self.end = as_integer(
                end, "end", 0, MOST_TOKENS - 1, advice="give a token of the audit's small models"
            )
            self.more = (*ending(self.end), *with_token(self.end), *self.more)

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Decode until the limit."""
        randomness = {"uniforms": source} if self.repeatable else self._random(source, 0)
        limit = max_tokens(self, instance)
        drafts = (
            {"policy": instance.gamma_at_step} if self.has_policy else {"gamma": instance.gamma}
        )
        models = models_for(instance, source)
        options = {**drafts, "max_tokens": limit, **randomness}
        return as_tokens(self.function(*models, instance.prompt, **options))
