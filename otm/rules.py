"""The list of all verification rules, with their names and properties.

A rule turns drafts into output.  If the rule is lossless, the output has the target distribution.
A rule has one name and up to four forms:

- A *plan* (`otm.coupling`) selects one token from k drafts and has exact distributions.
  `otm.compare`, reports, the audit and the protocol tests use plans.  In a decoding loop, a plan
  for a kind of drafts in `DRAFT_KINDS` verifies draft trees by SpecTr's recursion.
- A *verifier* (`otm.decoding`) selects several tokens from a chain or a tree of drafts.
- A *kernel* (`otm.kernels`) verifies batches of chains on tensors; its folder has one file for each
  backend.  All backends of a kernel make the same decisions.  The verifiers "grid k-Seq", "grid
  optimal" and "grid walk and keep" run the NumPy reference of their kernel on the host, with the
  same uniforms in the same order.  The verifiers "chain" and "block" have the same distribution as
  their kernels, but read the uniforms in another order.
- A *loop* draws drafts and output together ("list coupling").

A function that takes the name of a rule calls `named` once and then uses the `Rule`.  A rule
imports its plan, verifier or kernel on first use, from the full path in this list.

Your own rule needs no entry in this list.  Every function that takes the name of a plan also takes
"module:name", such as "my_rules:MyPlan".  Your own rule is a function from a problem to a plan, in
a module that Python can import; the worker processes of a report also import this module.

To add a rule to OTM, add a file and an entry here.  Two rules with different decisions have two
names: "grid k-Seq" takes its division factor from a grid, but "k-Seq" computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from otm._core.display.text import shown
from otm._core.numbers import check_name, no_such_name
from otm._core.rule import BACKENDS, DRAFT_KINDS, Rule
from otm.errors import UnknownMethodError

__all__ = ["RULES", "Rule", "named", "names"]

Form = Literal["plan", "verifier", "kernel"]
"""The forms of a rule that `named` and `names` can look up."""


def rule_from_plan(plan: Callable[..., Any]) -> Rule:
    """Build a rule for i.i.d. drafts from a function that maps a problem to a plan.

    Parameters
    ----------
    plan : callable
        A class of `otm.coupling`, a value of `otm.coupling.PLANS`, or your own function.

    Returns
    -------
    Rule
        A rule with the function as its plan.

    Examples
    --------
    >>> from otm.coupling import KSeq
    >>> rule_from_plan(KSeq).maximal_for_one
    True
    """
    listed = getattr(plan, "rule", None)
    if isinstance(listed, Rule):
        return Rule(listed.name, "IID", listed.source, plan, maximal_for_one=listed.maximal_for_one)
    path = f"{getattr(plan, '__module__', '')}:{getattr(plan, '__qualname__', '')}"
    maximal = any(rule.plan == path and rule.maximal_for_one for rule in RULES.values())
    return Rule(getattr(plan, "__name__", shown(plan)), "IID", path, plan, maximal_for_one=maximal)


_LIST = (
    Rule(
        "optimal", "IID", "docs/theory/optimal-plan.md, Theorem 5.3",
        "otm.coupling.optimal:OptimalPlan", maximal_for_one=True,
    ),
    Rule(
        "k-Seq", "IID", "Sun et al. 2023 (SpecTr), Algorithm 2", "otm.coupling.k_seq:KSeq",
        maximal_for_one=True,
    ),
    Rule(
        "recursive rejection", "IID", "Miao et al. 2024 (SpecInfer); SpecTr, appendix B.3",
        "otm.coupling.recursive_rejection:RecursiveRejection", maximal_for_one=True,
    ),
    Rule(
        "recursive rejection without replacement", "WithoutReplacement",
        "Chen et al. 2024 (Sequoia); Jeon et al. 2024",
        "otm.coupling.recursive_rejection_without_replacement:RecursiveRejectionWithoutReplacement",
    ),
    Rule("greedy", "Greedy", "Hu et al. 2025", "otm.coupling.greedy_drafts:GreedyRule"),
    Rule(
        "target-only", "Top", "docs/theory/trees.md, Theorem 18.1; SGLang",
        "otm.coupling.target_only:TargetOnly",
        verifier="otm.decoding.verifiers.target_only:verify_target_only",
    ),
    Rule("SpecHub", "HubPairs", "Sun et al. 2024 (SpecHub)", "otm.coupling.spec_hub:SpecHub", k=2),
    Rule(
        "importance selection", "IID", "Khisti et al. 2025",
        "otm.coupling.importance_selection:ImportanceSelection",
    ),
    Rule(
        "list coupling", "IID", "Daliri et al. 2024; Rowan et al. 2025",
        "otm.coupled.list_coupling:ListCoupling", loop="otm.coupled.decode:decode_coupled",
    ),
    Rule(
        "naive target sampling", "IID", "Miao et al. 2024 (SpecInfer)",
        "otm.coupling.naive_target_sampling:NaiveTargetSampling",
    ),
    Rule(
        "non-iterative rejection", "IID", "Leviathan et al. 2023, appendix A.2",
        "otm.coupling.non_iterative_rejection:NonIterativeRejection",
    ),
    Rule(
        "maximal coupling", "IID", "SpecTr, Algorithm 1; Leviathan et al. 2023, section 2.3",
        "otm.coupling.maximal:MaximalCoupling", k=1,
    ),
    Rule(
        "chain", "IID", "Leviathan et al. 2023, Algorithm 1",
        verifier="otm.decoding.verifiers.chain:verify_chain", kernel="otm.kernels.chain",
        k=1,
    ),
    Rule(
        "block", "IID", "Sun et al. 2024 (block verification), Algorithm 2",
        verifier="otm.decoding.verifiers.block_traversal:verify_traversal",
        kernel="otm.kernels.block", k=1,
    ),
    Rule(
        "greedy block", "IID", "docs/theory/state.md, Theorem 19.1; Sun et al. 2024",
        verifier="otm.decoding.verifiers.greedy_block:GREEDY_BLOCK", k=1,
    ),
    Rule(
        "traversal", "IID",
        "Weng et al. 2025", verifier="otm.decoding.verifiers.block_traversal:verify_traversal",
    ),
    Rule(
        "walk and keep", "IID", "docs/theory/walk-and-keep.md, Theorem 14.1",
        verifier="otm.decoding.verifiers.walk_and_keep:verify_walk_and_keep",
    ),
    Rule(
        "branch and keep", "IID", "docs/theory/several-paths.md, Theorem 24.3",
        verifier="otm.decoding.verifiers.branch_and_keep:verify_branch_and_keep",
    ),
    Rule(
        "greedy multi-path", "IID", "Thomas and Pal 2026 (GBV)",
        verifier="otm.decoding.verifiers.greedy_paths:verify_greedy_paths",
    ),
    Rule(
        "grid k-Seq", "IID", "docs/theory/grid.md, Theorem 11.1; SpecTr, Algorithm 2",
        "otm.coupling.grid_k_seq:GridKSeq",
        verifier="otm.decoding.verifiers.grid:verify_grid_k_seq", kernel="otm.kernels.k_seq",
        max_k=64,
    ),
    Rule(
        "grid optimal", "IID", "docs/theory/grid.md, Theorem 11.2",
        "otm.coupling.grid_optimal:GridOptimal",
        verifier="otm.decoding.verifiers.grid:verify_grid_optimal", kernel="otm.kernels.optimal",
        max_k=64,
    ),
    Rule(
        "grid walk and keep", "IID", "docs/theory/walk-and-keep.md, Theorem 14.6",
        verifier="otm.decoding.verifiers.grid:verify_grid_walk_and_keep",
        kernel="otm.kernels.walk_and_keep",
    ),
    Rule(
        "lenient", "IID", "docs/theory/lenience.md; Leviathan et al. 2023, appendix A.5",
        "otm.coupling.lossy.lenient:LenientPlan", lossless=False, parameters=("lenience",),
    ),
    Rule(
        "lenient argmax", "IID", "Leviathan et al. 2023, appendix A.5",
        "otm.coupling.lossy.lenient:ArgmaxLenientPlan", k=1, lossless=False,
        parameters=("lenience",),
    ),
    Rule(
        "typical acceptance", "IID", "Cai et al. 2024 (Medusa), section 2.3.1",
        "otm.coupling.lossy.typical_acceptance:TypicalAcceptance", lossless=False,
    ),
    Rule(
        "entropy window", "IID", "FLy, arXiv 2511.22972; vLLM",
        verifier="otm.decoding.verifiers.entropy_window:entropy_window_verifier", k=1,
        lossless=False,
        parameters=("window", "threshold"),
    ),
    Rule(
        "hierarchical", "IID", "Zhou et al. 2026 (HSD), released code",
        verifier="otm.decoding.verifiers.greedy_block:verify_hierarchical", k=1, lossless=False,
    ),
    Rule(
        "ensemble", "IID", "Wang et al. 2026 (DIVERSED); transformers",
        "otm.coupling.lossy.relaxed:EnsemblePlan", lossless=False, parameters=("weight",),
    ),
    Rule(
        "cascade", "IID", "Narasimhan et al. 2025, section 4.4",
        "otm.coupling.lossy.relaxed:CascadePlan", lossless=False, parameters=("slack",),
    ),
    Rule(
        "Cactus", "IID", "Hao and Mou 2026",
        "otm.coupling.lossy.cactus:Cactus", k=1, lossless=False, parameters=("delta",),
    ),
    Rule(
        "synthetic acceptance", "IID", "vLLM, to measure speed",
        "otm.coupling.lossy.synthetic_acceptance:SyntheticAcceptance", lossless=False,
        parameters=("rate",),
    ),
)  # fmt: skip

_BY_NAME = {rule.name: rule for rule in _LIST}
RULES: Mapping[str, Rule] = MappingProxyType(_BY_NAME)
"""Mapping from the name of each rule to the rule."""


def names(
    form: Form, *, several: bool | None = None, backend: str | None = None
) -> tuple[str, ...]:
    """List the names of the lossless rules that have a form and need no parameters.

    Parameters
    ----------
    form : {"plan", "verifier", "kernel"}
        The form.  "verifier" also lists rules that have only a plan for drafts in `DRAFT_KINDS`,
        because SpecTr's recursion makes a verifier from such a plan.
    several : bool, optional
        If True, list only rules for several drafts of a token; if False, only rules for one chain.
    backend : {"numpy", "torch", "triton"}, optional
        If set, list only rules with a kernel for this backend.

    Returns
    -------
    tuple of str
        The names, in the order of the list.

    Raises
    ------
    UnknownMethodError
        If the form or the backend does not exist.

    Examples
    --------
    >>> names("kernel")
    ('chain', 'block', 'grid k-Seq', 'grid optimal', 'grid walk and keep')
    >>> names("verifier", several=False)
    ('chain', 'block', 'greedy block')
    """
    check_name("form", form, _PACKAGES)
    if backend is not None:
        check_name("backend", backend, BACKENDS)
    return tuple(
        rule.name
        for rule in RULES.values()
        if _has_form(rule, form)
        and rule.lossless
        and several in (None, rule.several)
        and backend in (None, *rule.backends)
    )


def named(name: object, form: Form, *, several: bool | None = None) -> Rule:
    """Return the rule with this name; raise if it does not have the form.

    Parameters
    ----------
    name : str or Rule
        A name in the list, or "module:name" for your own function from a problem to a plan for
        i.i.d. drafts, which is then imported.  A `Rule` is returned unchanged.
    form : {"plan", "verifier", "kernel"}
        The form that the rule must have.
    several : bool, optional
        Same as for `names`.

    Returns
    -------
    Rule
        The rule.

    Raises
    ------
    UnknownMethodError
        If the form or the rule does not exist, the rule does not have this form, or your own rule
        cannot be imported.  The message lists the rules that exist in the requested form.
    InvalidParameterError
        If your own rule is not callable.

    Examples
    --------
    >>> named("block", "kernel").source
    'Sun et al. 2024 (block verification), Algorithm 2'
    >>> named("otm.coupling:KSeq", "plan").plan
    'otm.coupling:KSeq'
    """
    check_name("form", form, _PACKAGES)
    rule = name if isinstance(name, Rule) else RULES.get(name) if isinstance(name, str) else None
    own = isinstance(name, str) and ":" in name
    if isinstance(name, str) and own:
        rule = Rule(name, "IID", name, plan=name)
    usable = rule is not None and _has_form(rule, form) and rule.lossless
    if rule is not None and usable and several in (None, rule.several):
        if own:
            rule.load_plan()
        return rule
    known = names(form, several=several)
    if rule is None:
        raise no_such_name("rule", name, known)
    if rule.parameters or not rule.lossless:
        needs = f" and needs {', '.join(rule.parameters)}" if rule.parameters else ""
        raise UnknownMethodError(
            f"rule {shown(rule.name)} is not lossless{needs}; give a function from a problem to a "
            f"plan, or one of {known}"
        )
    if several is not None and _has_form(rule, form):
        kinds = ("one chain of drafts", "several drafts of a token")
        raise UnknownMethodError(
            f"rule {shown(rule.name)} is for {kinds[rule.several]}, but this call needs a rule for "
            f"{kinds[several]}: {', '.join(known)}"
        )
    where = ", ".join(
        f"{part} ({package})" for part, package in _PACKAGES.items() if _has_form(rule, part)
    )
    raise UnknownMethodError(
        f"rule {shown(rule.name)} cannot be used here: it is for {rule.drafts} drafts and has the "
        f"form {where}; use one of {', '.join(known)}"
    )


_PACKAGES: dict[Form, str] = {
    "plan": "otm.coupling",
    "verifier": "otm.decoding",
    "kernel": "otm.kernels",
}


def _has_form(rule: Rule, form: Form) -> bool:
    """Whether a rule has a form."""
    if form != "verifier":
        return bool(rule.plan if form == "plan" else rule.kernel)
    recursion = bool(rule.plan) and rule.drafts in DRAFT_KINDS and rule.several
    return (bool(rule.verifier) or (recursion and rule.lossless)) and not rule.parameters
