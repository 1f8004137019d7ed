"""The rules of verification: the one list of their names and properties.

A rule turns drafts into output.  If it is lossless, the output has the target's distribution.  It
may come in four forms, and has one name for all of them:

- a *plan* (`otm.coupling`): one token from k drafts, with exact distributions.  `otm.compare`,
  reports, the audit and the tests of the protocol run over these; in a loop a rule for drafts in
  `DRAFT_KINDS` verifies trees of drafts by SpecTr's recursion over its plans;
- a *verifier* (`otm.decoding`): several tokens from a chain or a tree of drafts;
- a *kernel* (`otm.kernels`): whole batches of chains on tensors, in a folder with one file per
  backend.  The backends make the same decisions.  "grid k-Seq", "grid optimal" and "grid walk and
  keep" run the kernel's definition on the host as well, and take the same uniforms in the same
  order there.  The verifiers "chain" and "block" have the distribution of their kernels, but read
  their uniforms in another order;
- a *loop* of its own, where drafts and output are drawn together ("list coupling").

A function that takes the name of a rule looks it up once, by `named`, and passes the `Rule` on.  A
rule imports its plan, verifier or kernel on use, from the full path in this list.

A rule of your own needs no line here.  Wherever a plan is asked for by name you may give
"module:name", such as "my_rules:MyPlan": a function from a problem to a plan, in a module that
Python can import (the workers of a report import it too).

Adding a rule is a file and a line here.  Two rules that decide differently have two names:
"grid k-Seq" takes its division factor from a grid, where "k-Seq" computes it.
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
"""What a rule may be asked for as."""


def own_rule(plan: Callable[..., Any]) -> Rule:
    """Return a rule for i.i.d. drafts, made of a function from a problem to a plan.

    Parameters
    ----------
    plan : callable
        A class of `otm.coupling`, a value of `otm.coupling.PLANS`, or a function of one's own.

    Returns
    -------
    Rule
        With the function as its plan.

    Examples
    --------
    >>> from otm.coupling import KSeq
    >>> own_rule(KSeq).maximal_for_one
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
        "grid k-Seq", "IID", "docs/theory/k-seq.md; SpecTr, Algorithm 2",
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
"""Every rule by its name."""


def names(
    form: Form, *, several: bool | None = None, backend: str | None = None
) -> tuple[str, ...]:
    """List the lossless rules that have a form and need no parameters.

    Parameters
    ----------
    form : {"plan", "verifier", "kernel"}
        The form.  "verifier" also lists rules with a plan for drafts in `DRAFT_KINDS`, which
        SpecTr's recursion verifies.
    several : bool, optional
        Only those for several drafts of a token (True) or for one chain (False).
    backend : {"numpy", "torch", "triton"}, optional
        Only those with a kernel of this backend.

    Returns
    -------
    tuple of str
        In the order of the list.

    Raises
    ------
    UnknownMethodError
        If there is no such form or backend.

    Examples
    --------
    >>> names("kernel")
    ('chain', 'block', 'grid k-Seq', 'grid optimal', 'grid walk and keep')
    >>> names("verifier", several=False)
    ('chain', 'block', 'greedy block')
    """
    check_name("form", form, _HOMES)
    if backend is not None:
        check_name("backend", backend, BACKENDS)
    return tuple(
        rule.name
        for rule in RULES.values()
        if _has(rule, form)
        and rule.lossless
        and several in (None, rule.several)
        and backend in (None, *rule.backends)
    )


def named(name: object, form: Form, *, several: bool | None = None) -> Rule:
    """Return the rule of a name, if it has a form.

    Parameters
    ----------
    name : str or Rule
        A name of the list; or "module:name" of a function from a problem to a plan for i.i.d.
        drafts, which is a rule of your own and is imported here.  A rule that was looked up before
        is returned as it is.
    form : {"plan", "verifier", "kernel"}
        The form that the rule must have.
    several : bool, optional
        As for `names`.

    Returns
    -------
    Rule
        The rule.

    Raises
    ------
    UnknownMethodError
        If there is no such form or rule, the rule does not have this form, or a rule of your own
        cannot be imported; the message lists the rules that have the form.
    InvalidParameterError
        If a rule of your own is not callable.

    Examples
    --------
    >>> named("block", "kernel").source
    'Sun et al. 2024 (block verification), Algorithm 2'
    >>> named("otm.coupling:KSeq", "plan").plan
    'otm.coupling:KSeq'
    """
    check_name("form", form, _HOMES)
    rule = name if isinstance(name, Rule) else RULES.get(name) if isinstance(name, str) else None
    own = isinstance(name, str) and ":" in name
    if isinstance(name, str) and own:
        rule = Rule(name, "IID", name, plan=name)
    usable = rule is not None and _has(rule, form) and rule.lossless
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
            f"rule {shown(rule.name)} is not lossless{needs}; give a function of a problem, or one "
            f"of {known}"
        )
    if several is not None and _has(rule, form):
        kinds = ("one chain of drafts", "several drafts of a token")
        raise UnknownMethodError(
            f"rule {shown(rule.name)} is for {kinds[rule.several]}; here a rule for "
            f"{kinds[several]} is needed: {', '.join(known)}"
        )
    where = ", ".join(f"{part} ({home})" for part, home in _HOMES.items() if _has(rule, part))
    raise UnknownMethodError(
        f"rule {shown(rule.name)} cannot be used here: it is for {rule.drafts} drafts and comes as "
        f"{where}; here there are {', '.join(known)}"
    )


_HOMES: dict[Form, str] = {
    "plan": "otm.coupling",
    "verifier": "otm.decoding",
    "kernel": "otm.kernels",
}


def _has(rule: Rule, form: Form) -> bool:
    """Whether a rule has a form."""
    if form != "verifier":
        return bool(rule.plan if form == "plan" else rule.kernel)
    recursion = bool(rule.plan) and rule.drafts in DRAFT_KINDS and rule.several
    return (bool(rule.verifier) or (recursion and rule.lossless)) and not rule.parameters
