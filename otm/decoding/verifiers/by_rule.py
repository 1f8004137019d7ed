"""Choosing the verifier of a rule, on the device of the models or on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from otm._core.display.text import shown
from otm.coupling.build import PlanBuilder, PlanOfRule
from otm.decoding.drafters.base import Drafter
from otm.decoding.drafters.model import draws_chains
from otm.decoding.drafters.prompt_lookup import PromptLookup
from otm.decoding.rounds import AnyVerifier, Rounds, RoundsTask, rounds_factory
from otm.decoding.verifiers.recursion import spectr_verifier
from otm.errors import InvalidParameterError
from otm.rules import RULES, Rule, named, names, rule_from_plan


@dataclass(frozen=True)
class RuleVerifier:
    """Verification by a rule: by its kernel on the models' device if possible, else on the host."""

    rule: Rule

    def rounds(self, task: RoundsTask) -> Rounds:
        """Return an object that runs the steps of one batch, on the device or on the host."""
        kernel = kernel_rule(self.rule, task)
        if kernel is None:
            return rounds_factory(host_verifier(self.rule))(task)
        from otm.decoding.device.rounds import KernelRounds

        return KernelRounds(task, kernel)


def kernel_rule(rule: Rule, task: RoundsTask) -> Rule | None:
    """Return a rule whose kernel decides as `rule` does; None if the host verifies."""
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
