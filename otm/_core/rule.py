"""One rule of verification: its properties, and the import paths of its forms.

`otm.rules` has the list of all rules, and looks them up by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import resolve_name
from typing import Any

from otm._core.display.text import shown
from otm.errors import InvalidParameterError, UnknownMethodError

BACKENDS = ("numpy", "torch", "triton")
"""Backends of kernels; numpy is the reference."""


DRAFT_KINDS = ("IID", "WithoutReplacement", "Greedy", "Top")
"""Classes of `otm.drafts` by which a decoding loop can draw the children of a node."""


@dataclass(frozen=True)
class Rule:
    """A rule of verification, and the import paths of its forms.

    Attributes
    ----------
    name : str
        Name of the rule throughout OTM.
    drafts : str
        How drafts are drawn: a class of `otm.drafts`.
    source : str
        Paper with the number of the theorem, algorithm or section; or the page with the proof.
    plan : str or callable
        Class of the plan as "module:Class", or a user's function; empty if there is no plan.
    verifier : str
        Function that verifies chains or trees, as "module:function", or an object with a method
        `rounds`; empty if SpecTr's recursion over the plan is the only verifier.
    loop : str
        Decoding function as "module:function", for rules that draw drafts and output together;
        empty for other rules.
    kernel : str
        Package of the kernels, with a module for each backend; empty if there is no kernel.
    k : int or None
        Number of drafts, for a rule that works for one number only; otherwise None.
    max_k : int or None
        Largest number of drafts of the plan, or None if there is no limit.
    lossless : bool
        Whether the output has the distribution of the target.
    parameters : tuple of str
        Parameters that the plan needs in addition to a problem.
    backends : tuple of str
        Backends of the kernel; empty if there is no kernel.
    maximal_for_one : bool
        Whether the rule is the maximal coupling for a single draft; if so, the loop uses chain
        verification and builds no plan.

    Examples
    --------
    >>> from otm.rules import RULES
    >>> RULES["k-Seq"].source
    'Sun et al. 2023 (SpecTr), Algorithm 2'
    >>> RULES["grid k-Seq"].backends
    ('numpy', 'torch', 'triton')
    """

    name: str
    drafts: str
    source: str
    plan: str | Callable[..., Any] = ""
    verifier: str = ""
    loop: str = ""
    kernel: str = ""
    k: int | None = None
    max_k: int | None = None
    lossless: bool = True
    parameters: tuple[str, ...] = ()
    backends: tuple[str, ...] = BACKENDS
    maximal_for_one: bool = False

    def __post_init__(self) -> None:
        if not self.kernel:
            object.__setattr__(self, "backends", ())

    @property
    def several(self) -> bool:
        """Whether the rule allows any number of drafts per token: several chains, or a tree."""
        return self.k is None

    def load_plan(self) -> Callable[..., Any]:
        """Import the class or function of the plan.

        Returns
        -------
        callable
            Function from a problem, and the values of `parameters`, to a plan.

        Raises
        ------
        UnknownMethodError
            If the path cannot be imported.
        InvalidParameterError
            If the imported object is not callable.
        """
        if not isinstance(self.plan, str):
            return self.plan
        try:
            plan: object = resolve_name(self.plan)
        except (ImportError, AttributeError, ValueError) as error:
            raise UnknownMethodError(
                f'rule {shown(self.name)} cannot be imported: {error!s:.120}; give "module:name" '
                "of a function from a problem to a plan, in a module that Python can import"
            ) from None
        if not callable(plan):
            raise InvalidParameterError(
                f'rule {shown(self.name)} is a {type(plan).__name__}; give "module:name" of a '
                "function from a problem to a plan, such as otm.coupling:KSeq"
            )
        return plan

    def load_verifier(self) -> Any:
        """Import the verifier of a rule that has one.

        Returns
        -------
        Verifier or RoundsVerifier
            The verifier, which `otm.decoding.stream` accepts.
        """
        return resolve_name(self.verifier)

    def load_kernel(self, backend: str) -> Any:
        """Import the kernel module of one backend, for a rule that has a kernel.

        Parameters
        ----------
        backend : {"numpy", "torch", "triton"}
            One of `backends`.

        Returns
        -------
        module
            The module, which has a function `verify`.
        """
        return import_module(f"{self.kernel}.{backend}")
