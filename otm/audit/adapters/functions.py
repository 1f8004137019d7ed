"""Adapters of functions: the shared base class, and the adapter of a verifier of one chain."""

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
"""Limit of seeds: `numpy.random.seed` takes 32 bits, which some generators read as signed."""

CHAIN = ("target_probs", "draft_probs", "draft_tokens")

RANDOMNESS = ("uniforms", "rng", "generator", "seed")
"""Names of a randomness parameter; a function without one draws its own random numbers."""


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Read the parameters of a function; raise if they cannot be read."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        raise InvalidParameterError(
            f"the parameters of {shown(function)} cannot be read; wrap it in a Python function"
        ) from None


def count_required(function: Callable[..., Any]) -> int:
    """Count the parameters without a default."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = (p for p in parameters_of(function).values() if p.kind not in kinds)
    return sum(p.default is inspect.Parameter.empty for p in needed)


def randomness_of(function: Callable[..., Any], before: int) -> str | None:
    """Return the name of the randomness parameter, which follows `before` other parameters."""
    parameters = parameters_of(function)
    names = [name for name in RANDOMNESS if name in parameters]
    if any(parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY for name in names):
        raise InvalidParameterError(
            f"a verifier with the parameters ({', '.join(parameters)}) takes {names[0]} only by "
            "position; it must accept it by name"
        )
    if count_required(function) > before + len(names) or len(names) > 1 or len(parameters) < before:
        raise InvalidParameterError(
            f"the verifier has the parameters ({', '.join(parameters)}); it must have {before} "
            f"parameters, then at most one, called {', '.join(RANDOMNESS[:-1])} or "
            f"{RANDOMNESS[-1]}; rename the others, or bind them beforehand"
        )
    return names[0] if names else None


TENSOR_ADVICE = (
    "if it needs tensors, give convert=torch.as_tensor; for the command line, add a line to the "
    "module: wrapped = otm.audit.chain(verify, convert=torch.as_tensor)"
)
"""Advice for a function that fails on NumPy arrays."""


def _may_need_tensors(message: str) -> bool:
    """Whether an error message is typical of code that got arrays in place of tensors."""
    signs = ("ndarray' object has no attribute", "unexpected keyword argument 'dim'")
    of_torch = "Tensor" in message and "ndarray" in message
    return of_torch or any(sign in message for sign in signs)


class FunctionAdapter(Adapter):
    """Base class of adapters of functions; passes randomness as the function expects it."""

    # Number of parameters before the randomness parameter.
    before = 3
    # Number of uniforms in addition to one for each draft.
    beyond = 0

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
        self.uses_global_rng = self.takes_randomness in {None, "rng", "generator"}
        if self.takes_randomness == "generator":
            # Import torch before the audit replaces generators, so that it replaces torch's too.
            require("torch")
        self.exact = (self.repeatable or self.uses_global_rng) and convert is None
        self._uniforms = uniforms or (lambda drafts: drafts + self.beyond)

    def _ask(self, source: Randomness, drafts: int, *arrays: Any, **more: Any) -> Any:
        """Call the function on arrays and its randomness; add a note to errors about tensors."""
        arguments, more = list(map(self.convert, arrays)), more | self._random(source, drafts)
        try:
            return self.function(*arguments, **more)
        except (TypeError, AttributeError) as error:
            if not self._converts and _may_need_tensors(str(error)):
                error.add_note(TENSOR_ADVICE)
            raise

    def _random(self, source: Randomness, drafts: int) -> dict[str, Any]:
        """Return the function's randomness argument, made from `source` even if it is a seed."""
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
        Function of the target probabilities [γ + 1, V], the draft probabilities [γ, V], the draft
        tokens [γ] and uniforms [γ + 2].  The function returns the accepted drafts and one more
        token: as a sequence, which −1 may pad at the end, or as (tokens, number accepted).  In
        place of `uniforms`, the function's last parameter may be called `rng` (a NumPy generator),
        `generator` (a torch generator) or `seed`.  A function without a randomness parameter draws
        its own random numbers; the audit can replace these draws if they come from global
        generators.
    name : str, optional
        Name in reports.
    uniforms : callable, optional
        Function from γ to the number of uniforms.
    convert : callable, optional
        Function that converts each array, such as `torch.as_tensor`.

    Raises
    ------
    InvalidParameterError
        If the function has other parameters, or they cannot be read.
    MissingDependencyError
        If the function has a parameter `generator`, and torch is not installed.

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
        """Draw drafts, then verify them."""
        drafts = self.drafted(instance, source)
        rows, tokens = self._rows(instance, drafts, is_exact(source)), np.array(drafts)
        return as_tokens(self._ask(source, tokens.size, *rows, tokens))

    def _rows(self, instance: Instance, drafts: Any, exact: bool) -> tuple[Probs, Probs]:
        """Return the target and draft probabilities for the function."""
        return chain_probs(instance, drafts, exact)
