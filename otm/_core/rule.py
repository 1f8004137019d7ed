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
"""Where kernels run; numpy is the definition."""


DRAFT_KINDS = ("IID", "WithoutReplacement", "Greedy", "Top")
"""How the children of a node can be drawn in a loop: classes of `otm.drafts`."""


@dataclass(frozen=True)
class Rule:
    """A rule of verification, and the import paths of its forms.

    Attributes
    ----------
    name : str
        The name that every part of OTM knows it by.
    drafts : str
        How its drafts are drawn: a class of `otm.drafts`.
    source : str
        Paper, and the number of its theorem, algorithm or section; or the page that proves it.
    plan : str or callable
        Class of its plan, as "module:Class", or a function of one's own; empty without a plan.
    verifier : str
        Its function for chains or trees, as "module:function", or an object with a method
        `rounds`; empty if SpecTr's recursion over its plan is the only one.
    loop : str
        Function that decodes by it, as "module:function", if it draws drafts and output together;
        empty for all others.
    kernel : str
        Package of its kernels, with a module for each backend; empty without a kernel.
    k : int or None
        The only number of drafts that the rule takes; None if it takes any.
    max_k : int or None
        Largest number of drafts of its plan, if there is a limit.
    lossless : bool
        Whether the output has the distribution of the target.
    parameters : tuple of str
        Parameters that it needs beside a problem.
    backends : tuple of str
        Modules of its kernel; none without a kernel.
    maximal_for_one : bool
        Whether the rule is the maximal coupling for a single draft.  Chain verification then
        decides, and no plan is built.

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
        """Whether it takes any number of drafts for a token, and so several chains or a tree."""
        return self.k is None

    def load_plan(self) -> Callable[..., Any]:
        """Import the class or function of the plan.

        Returns
        -------
        callable
            From a problem, and `parameters` if there are any, to a plan.

        Raises
        ------
        UnknownMethodError
            If it cannot be imported.
        InvalidParameterError
            If it is not callable.
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
        """Import the verifier, which the rule must have.

        Returns
        -------
        Verifier or RoundsVerifier
            As `otm.decoding.stream` takes it.
        """
        return resolve_name(self.verifier)

    def load_kernel(self, backend: str) -> Any:
        """Import the module of the kernel for a backend, which the rule must have.

        Parameters
        ----------
        backend : {"numpy", "torch", "triton"}
            One of `backends`.

        Returns
        -------
        module
            With the function `verify`.
        """
        return import_module(f"{self.kernel}.{backend}")
