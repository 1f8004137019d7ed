"""The adapter of a whole decoding loop."""

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
    """Audit a way of decoding f(target, draft, prompt, gamma, max_tokens, uniforms).

    Parameters
    ----------
    function : callable
        Takes two models, of which `model.probs(tokens)` is the distribution of the next token; a
        prompt; by name `gamma` and `max_tokens`; and `uniforms`, a source of uniforms such as
        `rng.random`, or its randomness as for `chain`.  Returns the new tokens, at most
        `max_tokens`.  In place of `gamma` it may take `policy`, a function from the number of steps
        before to the γ of the next step, which is then also audited where γ changes.
    name : str, optional
        What reports call it.
    max_tokens : int, optional
        Number of tokens of a text; 3 or 4, and on some instances 6, if left out.
    end : int, optional
        The token that ends a text.  A text has `max_tokens` tokens, or is shorter and ends with
        `end`; no token may follow `end`.  Without `end`, no text may be shorter.

    Raises
    ------
    InvalidParameterError
        If the parameters of the function are others, or cannot be read, `max_tokens` is not a
        number of tokens, or `end` is not a token.
    MissingDependencyError
        If the function takes a `generator`, and torch is not installed.

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
                end, "end", 0, MOST_TOKENS - 1, advice="a token of the audit's small models"
            )
            self.more = (*ending(self.end), *with_token(self.end), *self.more)

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Decode up to the limit."""
        randomness = {"uniforms": source} if self.repeatable else self._random(source, 0)
        limit = max_tokens(self, instance)
        drafts = {"policy": instance.gamma_of} if self.has_policy else {"gamma": instance.gamma}
        models = models_for(instance, source)
        options = {**drafts, "max_tokens": limit, **randomness}
        return as_tokens(self.function(*models, instance.prompt, **options))
