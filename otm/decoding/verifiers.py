"""From the name of a rule to the function that verifies drafts by it."""

from __future__ import annotations

from importlib import import_module

from otm._core.text import shown
from otm.coupling.build import PLANS, PlanBuilder
from otm.decoding.verification import Verifier, spectr_verifier
from otm.errors import InvalidParameterError
from otm.rules import Rule, named, names


def tree_rules() -> tuple[str, ...]:
    """List the rules that verify several drafts of a token: those that `spectr` takes by name.

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


def chain_verifier(rule: str) -> Verifier:
    """Return the verifier of chains that a name stands for; refuse other rules."""
    return _verifier(named(rule, "verifier", several=False))


def tree_verifier(rule: str | PlanBuilder) -> Verifier:
    """Return the verifier of trees by a name, or by a function from a problem to a plan."""
    if callable(rule):
        return spectr_verifier(rule)
    if not isinstance(rule, str):
        raise InvalidParameterError(
            f"rule = {shown(rule)}; give a name, one of {', '.join(tree_rules())}, or a function "
            "from a problem to a plan"
        )
    return _verifier(named(rule, "verifier", several=True))


def _verifier(rule: Rule) -> Verifier:
    """Return the function of a rule; SpecTr's recursion over its plan if it has no other."""
    if not rule.verifier:
        return spectr_verifier(PLANS[rule.name])
    file, _, name = rule.verifier.partition(".")
    found: Verifier = getattr(import_module(f"otm.decoding.{file}"), name)
    return found
