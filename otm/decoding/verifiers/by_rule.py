"""Choosing the verifier of a rule, on the device of the models or on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from otm._core.display.text import shown
from otm.coupling.build import PlanBuilder, PlanOfRule
from otm.decoding.drafters.base import Drafter
from otm.decoding.drafters.model import draws_chains, draws_prefix_trees
from otm.decoding.drafters.prompt_lookup import PromptLookup
from otm.decoding.rounds import AnyVerifier, Rounds, RoundsTask, rounds_factory
from otm.decoding.verifiers.recursion import spectr_verifier
from otm.errors import InvalidParameterError
from otm.rules import RULES, Rule, named, names, rule_from_plan


@dataclass(frozen=True)
class RuleVerifier:
    """Verification by a rule: by its kernel on the models' device if possible, else on the host."""

    rule: Rule
    # Rules whose kernels verify in its place on a device, if it has none.
    on_device: tuple[Rule, ...] = ()

    def rounds(self, task: RoundsTask) -> Rounds:
        """Return an object that runs the steps of one batch, on the device or on the host."""
        for rule in self.on_device or (self.rule,):
            kernel = kernel_rule(rule, task)
            if kernel is not None:
                from otm.decoding.device.rounds import KernelRounds

                return KernelRounds(task, kernel)
            if verifies_trees_on_device(rule, task):
                from otm.decoding.device.trees import TreeKernelRounds

                # On a CPU, a drafter's own cache is faster: it reads each node once.
                return TreeKernelRounds(task, rule.name, grows=not task.is_on_cpu())
        return rounds_factory(host_verifier(self.rule))(task)


def verifies_trees_on_device(rule: Rule, task: RoundsTask) -> bool:
    """Return whether a kernel verifies the trees of a task, which the target must read at once."""
    if task.target.device is None or task.processor is not None or task.is_small():
        return False
    from otm.decoding.device.tree_drafts import KINDS, drafter_kind
    from otm.kernels.tree.verify import WALK

    # On a CPU, the host verifies faster, because it computes only with the tokens of the drafts.
    if rule.name == WALK and task.is_on_cpu():
        return False
    _, kinds = KINDS.get(rule.name, ("", ()))
    return drafter_kind(task.drafter) in kinds and task.target.reads_trees


def kernel_rule(rule: Rule, task: RoundsTask) -> Rule | None:
    """Return a rule whose kernel decides as `rule` does; None if the host verifies."""
    if rule.kernel and rule.several and draws_prefix_trees(task.drafter):
        is_there = task.drafter.model.device is not None and task.takes_kernels()
        return rule if is_there else None
    if not task.suits_device():
        return None
    # For one chain, rules that are maximal for one draft decide as "chain" does.
    if rule.maximal_for_one and drafts_one_chain(task.drafter):
        return RULES["chain"]
    return rule if rule.kernel else None


def drafts_one_chain(drafter: Drafter | None) -> bool:
    """Return whether the device verifies one chain of this drafter: of a model, or a copy."""
    if draws_chains(drafter):
        return drafter.branching == 1
    return isinstance(drafter, PromptLookup)


def host_verifier(rule: Rule) -> AnyVerifier:
    """Return the host verifier of a rule: its own verifier, or SpecTr's recursion with its plan."""
    verifier: AnyVerifier = (
        rule.load_verifier() if rule.verifier else spectr_verifier(PlanOfRule(rule))
    )
    return verifier


def chain_rule(rule: Any) -> Rule:
    """Return the single-chain rule of this name."""
    return named(rule, "verifier", several=False)


def tree_verifier(rule: str | PlanBuilder | None) -> RuleVerifier:
    """Return the verifier of a rule for trees; None is the rule that accepts most in benchmarks."""
    if rule is None:
        kernels = RULES["grid walk and keep"], RULES["walk and keep"]
        return RuleVerifier(RULES["branch and keep"], kernels)
    return RuleVerifier(tree_rule(rule))


def tree_rule(rule: str | PlanBuilder) -> Rule:
    """Return the tree rule of this name, or a rule made from a function from problem to plan."""
    if callable(rule):
        return rule_from_plan(rule)
    if not isinstance(rule, str):
        raise InvalidParameterError(
            f"rule = {shown(rule)}; give one of the names {', '.join(tree_rules())}, or a function "
            "from a problem to a plan"
        )
    return named(rule, "verifier", several=True)


def tree_rules() -> tuple[str, ...]:
    """Return the names of the rules that verify several drafts of a token, for use in `spectr`.

    Most rules need i.i.d. drafts; `otm.rules.Rule.drafts` is the kind of drafts of each rule.

    Returns
    -------
    tuple of str
        Names in `otm.rules.RULES`.

    Examples
    --------
    >>> tree_rules()[:3]
    ('optimal', 'k-Seq', 'recursive rejection')
    """
    return names("verifier", several=True)
