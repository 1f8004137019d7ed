"""Adapters of functions: what all of them share, and the verifier of one chain."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs
from otm._core.display.text import shown
from otm._core.optional import require
from otm.audit.adapters.base import Adapter, Drafts, Instance
from otm.audit.adapters.drafts import as_tokens, chain_probs, draw_chain, is_exact
from otm.audit.intercept.interception import active_generator
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.errors import InvalidParameterError

LARGEST_SEED = 2**31
"""Seeds stay below: `numpy.random.seed` takes 32 bits, and other generators signed ones."""

CHAIN = ("target_probs", "draft_probs", "draft_tokens")

RANDOMNESS = ("uniforms", "rng", "generator", "seed")
"""Names of a parameter by which a function takes randomness; without one it draws for itself."""


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Read the parameters of a function; raise if they cannot be read."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        raise InvalidParameterError(
            f"the parameters of {shown(function)} cannot be read; wrap it into a function"
        ) from None


def count_required(function: Callable[..., Any]) -> int:
    """Count the parameters without a default."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = (p for p in parameters_of(function).values() if p.kind not in kinds)
    return sum(p.default is inspect.Parameter.empty for p in needed)


def randomness_of(function: Callable[..., Any], before: int) -> str | None:
    """Find the parameter by which a function takes randomness, after `before` others."""
    parameters = parameters_of(function)
    names = [name for name in RANDOMNESS if name in parameters]
    if any(parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY for name in names):
        raise InvalidParameterError(
            f"a verifier with the parameters ({', '.join(parameters)}), which takes {names[0]} by "
            "position alone; it must take it by name"
        )
    if count_required(function) > before + len(names) or len(names) > 1 or len(parameters) < before:
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
    """Whether an error message is typical of code that got arrays in place of tensors."""
    signs = ("ndarray' object has no attribute", "unexpected keyword argument 'dim'")
    of_torch = "Tensor" in message and "ndarray" in message
    return of_torch or any(sign in message for sign in signs)


class FunctionAdapter(Adapter):
    """An adapter of a function, which knows how the function gets its randomness."""

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
        """Call the function with arrays and its randomness; note if it seems to need tensors."""
        arguments, more = list(map(self.convert, arrays)), more | self._random(source, drafts)
        try:
            return self.function(*arguments, **more)
        except (TypeError, AttributeError) as error:
            if not self._converts and _wants_tensors(str(error)):
                error.add_note(WANTS_TENSORS)
            raise

    def _random(self, source: Randomness, drafts: int) -> dict[str, Any]:
        """Return the randomness argument of the function; seeds are drawn from the source too."""
        name = self.takes_randomness
        if name is None:
            return {}
        if name == "uniforms":
            return {name: self.convert(source(self._uniforms(drafts)))}
        if name != "seed" and (generator := active_generator(name)) is not None:
            return {name: generator}
        seed = int(source(1)[0] * LARGEST_SEED)
        if name == "rng":
            return {name: np.random.default_rng(seed)}
        if name == "generator":
            return {name: require("torch").Generator().manual_seed(seed)}
        return {name: seed}


class chain(FunctionAdapter):
    """Audit a verifier f(target_probs, draft_probs, draft_tokens, uniforms) of one chain.

    Parameters
    ----------
    function : callable
        Takes the target's probabilities [γ + 1, V], the draft's [γ, V], the drafts [γ] and uniforms
        [γ + 2]; returns the accepted drafts and one token more, as they are, padded by −1
        at the end, or as (tokens, accepted).  In place of `uniforms` its last parameter may be
        called `rng` (a NumPy generator), `generator` (of torch) or `seed`; without any it draws for
        itself, from global generators if all its draws are to be the audit's.
    name : str, optional
        What reports call it.
    uniforms : callable, optional
        From γ to the number of uniforms.
    convert : callable, optional
        Applied to all arrays, such as `torch.as_tensor`.

    Raises
    ------
    InvalidParameterError
        If the parameters of the function are not these, or cannot be read.
    MissingDependencyError
        If the function takes a `generator`, and torch is not installed.

    Examples
    --------
    >>> def accept_all(target_probs, draft_probs, draft_tokens, uniforms):
    ...     return [*draft_tokens, 0]
    >>> chain(accept_all, uniforms=lambda gamma: gamma).name
    'accept_all'
    """

    beyond = 2

    def drafted(self, instance: Instance, source: Randomness) -> Drafts:
        """Draw one chain."""
        return draw_chain(instance, source)

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draft, then verify."""
        drafts = self.drafted(instance, source)
        rows, tokens = self._rows(instance, drafts, is_exact(source)), np.array(drafts)
        return as_tokens(self._ask(source, tokens.size, *rows, tokens))

    def _rows(self, instance: Instance, drafts: Any, exact: bool) -> tuple[Probs, Probs]:
        """Return the probabilities of target and draft that the function is given."""
        return chain_probs(instance, drafts, exact)
