"""Adapters from plain functions: a rule for one token, a verifier of chains, a decoding loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.display.text import shown
from otm._core.numbers import as_integer, as_positive
from otm._core.optional import require
from otm.audit.adapters.base import Adapter, Instance, max_tokens
from otm.audit.adapters.drafted import (
    SelectionRule,
    as_tokens,
    chain_probs,
    draw_chain,
    is_exact,
    models_for,
)
from otm.audit.instances import CHANGING
from otm.audit.intercept.draws import handed_out
from otm.audit.larger_instances import MOST_TOKENS, ending, with_token
from otm.coupling.build import PlanBuilder
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.errors import InvalidParameterError

LARGEST_SEED = 2**31
"""Seeds stay below: `numpy.random.seed` takes 32 bits, and other generators signed ones."""

CHAIN = ("target_probs", "draft_probs", "draft_tokens")

RANDOMNESS = ("uniforms", "rng", "generator", "seed")
"""Names of a parameter by which a function takes randomness; without one it draws for itself."""


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Read the parameters of a function; refuse one whose parameters cannot be read."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        raise InvalidParameterError(
            f"the parameters of {shown(function)} cannot be read; wrap it into a function"
        ) from None


def required(function: Callable[..., Any]) -> int:
    """Count the parameters without a default."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = (p for p in parameters_of(function).values() if p.kind not in kinds)
    return sum(p.default is inspect.Parameter.empty for p in needed)


def randomness_of(function: Callable[..., Any], before: int) -> str | None:
    """Name of the parameter by which a function takes randomness, after `before` others."""
    parameters = parameters_of(function)
    names = [name for name in RANDOMNESS if name in parameters]
    if any(parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY for name in names):
        raise InvalidParameterError(
            f"a verifier with the parameters ({', '.join(parameters)}), which takes {names[0]} by "
            "position alone; it must take it by name"
        )
    if required(function) > before + len(names) or len(names) > 1 or len(parameters) < before:
        raise InvalidParameterError(
            f"a verifier with the parameters ({', '.join(parameters)}); it must take {before} "
            f"arguments, then at most one that is called {', '.join(RANDOMNESS[:-1])} or "
            f"{RANDOMNESS[-1]}; rename or bind others beforehand"
        )
    return names[0] if names else None


WANTS_TENSORS = (
    "if it takes tensors, give convert=torch.as_tensor; for the command line in a line of the "
    "module, wrapped = otm.audit.chain(verify, convert=torch.as_tensor)"
)
"""What a function that fails on arrays may need."""


def _wants_tensors(message: str) -> bool:
    """Whether an error is what code for tensors says about arrays."""
    signs = ("ndarray' object has no attribute", "unexpected keyword argument 'dim'")
    of_torch = "Tensor" in message and "ndarray" in message
    return of_torch or any(sign in message for sign in signs)


class Plain(Adapter):
    """What adapters of plain functions share: the function, and how it gets its randomness."""

    before = 3  # arguments before its randomness
    beyond = 0  # uniforms beyond one for each draft

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        uniforms: Callable[[int], int] | None = None,
        convert: Callable[[npt.NDArray[Any]], Any] | None = None,
    ) -> None:
        self.function = function
        self.name = str(name or getattr(function, "__name__", type(function).__name__))
        self._converts = convert is not None
        self.convert = convert or (lambda array: array)
        self.takes_randomness = randomness_of(function, self.before)
        self.repeatable = self.takes_randomness == "uniforms"
        self.own_draws = self.takes_randomness in {None, "rng", "generator"}
        if self.takes_randomness == "generator":
            require("torch")  # before generators are replaced, so that its own are, too
        self.exact = (self.repeatable or self.own_draws) and convert is None
        self._uniforms = uniforms or (lambda drafts: drafts + self.beyond)

    def _ask(self, source: Randomness, drafts: int, *arrays: Any, **more: Any) -> Any:
        """Call the function with arrays and its randomness; say what it may need if it fails."""
        arguments, more = list(map(self.convert, arrays)), more | self._random(source, drafts)
        try:
            return self.function(*arguments, **more)
        except (TypeError, AttributeError) as error:
            if not self._converts and _wants_tensors(str(error)):
                error.add_note(WANTS_TENSORS)
            raise

    def _random(self, source: Randomness, drafts: int) -> dict[str, Any]:
        """Draw what the function takes; a seed for its own generator is drawn as well."""
        name = self.takes_randomness
        if name is None:
            return {}
        if name == "uniforms":
            return {name: self.convert(source(self._uniforms(drafts)))}
        if name != "seed" and (generator := handed_out(name)) is not None:
            return {name: generator}
        seed = int(source(1)[0] * LARGEST_SEED)
        if name == "rng":
            return {name: np.random.default_rng(seed)}
        if name == "generator":
            return {name: require("torch").Generator().manual_seed(seed)}
        return {name: seed}


class Chain(Plain):
    """A verifier of one chain of drafts; see `chain`."""

    beyond = 2

    def drafted(self, instance: Instance, source: Randomness) -> Path:
        """Tell which drafts `output` draws from a source."""
        return draw_chain(instance, source)

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draft, then verify."""
        drafts = draw_chain(instance, source)
        rows = chain_probs(instance, drafts, is_exact(source))
        return as_tokens(self._ask(source, instance.gamma, *rows, np.array(drafts)))


class TokenRule(Plain):
    """A rule that outputs one token after k i.i.d. drafts; see `token_rule`."""

    max_tokens = 1
    beyond = 1

    def supports(self, instance: Instance) -> bool:
        """Any number of drafts for one token."""
        return instance.gamma == 1

    def drafted(self, instance: Instance, source: Randomness) -> Path:
        """Tell which drafts `output` draws from a source."""
        return tuple(draw_chain(instance, source)[0] for _ in range(instance.k))

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draft, then select."""
        drafts = self.drafted(instance, source)
        target, draft = chain_probs(instance, drafts[:1], is_exact(source))
        return as_tokens([self._ask(source, instance.k, target[0], draft[0], np.array(drafts))])


class Loop(Plain):
    """A whole way of decoding; see `loop`."""

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

    def supports(self, instance: Instance) -> bool:
        """Take one chain; with an end token, only vocabularies that have it."""
        return super().supports(instance) and (self.end or 0) < instance.vocabulary

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Decode up to the limit."""
        randomness = {"uniforms": source} if self.repeatable else self._random(source, 0)
        limit = max_tokens(self, instance)
        drafts = {"policy": instance.gamma_of} if self.has_policy else {"gamma": instance.gamma}
        models = models_for(instance, source)
        options = {**drafts, "max_tokens": limit, **randomness}
        return as_tokens(self.function(*models, instance.prompt, **options))


def chain(function: Callable[..., Any], **options: Any) -> Adapter:
    """Audit a verifier f(target_probs, draft_probs, draft_tokens, uniforms) of one chain.

    Parameters
    ----------
    function : callable
        Takes the target's probabilities [γ + 1, V], the draft's [γ, V], the drafts [γ] and uniforms
        [γ + 2]; returns the accepted drafts and one token more, as they are, padded by −1
        at the end, or as (tokens, accepted).  In place of `uniforms` its last parameter may be
        called `rng` (a NumPy generator), `generator` (of torch) or `seed`; without any it draws for
        itself, from global generators if all its draws are to be the audit's.
    **options
        `name` for reports; `uniforms`, from γ to the number of uniforms; `convert`, applied to all
        arrays, such as `torch.as_tensor`.

    Returns
    -------
    Adapter
        For one chain.

    Raises
    ------
    InvalidParameterError
        If the parameters of the function are not these, or cannot be read.

    Examples
    --------
    >>> def accept_all(target_probs, draft_probs, draft_tokens, uniforms):
    ...     return [*draft_tokens, 0]
    >>> chain(accept_all, uniforms=lambda gamma: gamma).name
    'accept_all'
    """
    return Chain(function, **options)


def token_rule(function: Callable[..., Any], **options: Any) -> Adapter:
    """Audit a rule f(target_probs, draft_probs, drafts, uniforms) for one token after k drafts.

    Parameters
    ----------
    function : callable
        Takes both probabilities [V], i.i.d. drafts [k] and uniforms [k + 1], and returns a token;
        its randomness as for `chain`.  Or a rule of `otm.coupling`, from a problem to a plan.
    **options
        As for `chain`, `uniforms` from k to the number of uniforms; for a rule only `name`.

    Returns
    -------
    Adapter
        For one token after k drafts.

    Raises
    ------
    InvalidParameterError
        If the parameters of the function are not these, or cannot be read.

    Examples
    --------
    >>> from otm.coupling import KSeq
    >>> token_rule(KSeq).name
    'KSeq'
    """
    if required(function) == 1:
        rule: PlanBuilder = function
        return SelectionRule(rule, **options)
    return TokenRule(function, **options)


def loop(function: Callable[..., Any], **options: Any) -> Adapter:
    """Audit a way of decoding f(target, draft, prompt, gamma, max_tokens, uniforms).

    Parameters
    ----------
    function : callable
        Takes two models, of which `model.probs(tokens)` is the distribution of the next token; a
        prompt; by name `gamma` and `max_tokens`; and `uniforms`, a source of uniforms such as
        `rng.random`, or its randomness as for `chain`.  Returns the new tokens, at most
        `max_tokens`.  In place of `gamma` it may take `policy`, a function from the number of steps
        before to the γ of the next step, which is then also audited where γ changes.
    **options
        `name` for reports; `max_tokens`, which is 3 or 4, and on some instances 6, if left out;
        `end`, the token that ends a text.  A text has `max_tokens` tokens, or is shorter and ends
        with `end`; no token may follow `end`.  Without `end`, no text may be shorter.

    Returns
    -------
    Adapter
        For one chain.

    Raises
    ------
    InvalidParameterError
        If the parameters of the function are others, or cannot be read, `max_tokens` is not a
        number of tokens, or `end` is not a token.

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
    return Loop(function, **options)
