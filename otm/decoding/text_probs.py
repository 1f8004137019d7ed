"""The log-probabilities with which a rule, also a lossy one, samples the tokens of a text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from otm._core.arithmetic import Number
from otm._core.checks import as_array
from otm._core.numbers import as_integer, as_positive
from otm._core.probs.sparse import SparseProbs
from otm.coupling.build import PlanBuilder, PlanOfRule
from otm.decoding.checks import as_prompts, check_models, check_tokens
from otm.decoding.reading import ProbsAfter, Reader
from otm.decoding.sampling_parameters import SamplingParameters
from otm.decoding.verifiers.recursion import build_tree_plan
from otm.errors import InvalidInputError
from otm.models.base import LanguageModel
from otm.rules import named


def sampled_log_probs(
    target: LanguageModel,
    draft: LanguageModel,
    prompt: Sequence[int],
    text: Sequence[int],
    rule: str | PlanBuilder,
    *,
    gamma: int = 5,
    sampling: SamplingParameters | None = None,
    draft_sampling: SamplingParameters | None = None,
    max_tokens: int | None = None,
) -> tuple[float, ...]:
    """Return the log-probability of each token of a text, as decoding by a rule samples it.

    This is the distribution of ``spectr(target, draft, [prompt], rule=rule, k=1, gamma=gamma)``.  A
    lossless rule samples from the target, so its log-probabilities are those of the target.  A
    lossy rule samples from another distribution, which depends on the place of a token in its step:
    the token after γ accepted drafts comes from the target itself.  The function sums over all ways
    in which the text can be divided into steps.

    Parameters
    ----------
    target, draft : LanguageModel
        The two models.
    prompt : sequence of int
        The tokens before the text.
    text : sequence of int
        The new tokens, with the end token if the text has one.
    rule : str or callable
        The name of a rule that has a plan, such as "optimal", or a function from a `Problem` to a
        plan; the drafts must be independent.
    gamma : int, optional
        Number of drafts γ of a step.
    sampling, draft_sampling : SamplingParameters, optional
        How tokens are sampled from the target and from the draft model, as for `spectr`.
    max_tokens : int, optional
        Limit of the loop, near which steps have fewer drafts; by default the length of the text.

    Returns
    -------
    tuple of float
        For each token, the logarithm of its probability after the prompt and the earlier tokens.

    Raises
    ------
    InvalidInputError
        If an argument is not a model or not tokens, or if the rule cannot sample this text: then it
        comes from other models, other sampling parameters or another rule.
    InvalidParameterError
        If the rule needs other drafts, or a number is outside its range.
    UnknownMethodError
        If no rule of this name has a plan; rules that verify whole paths have none.

    Examples
    --------
    >>> import numpy as np
    >>> from otm.coupling.lossy import LenientPlan
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.25, 0.75]}), TableModel({(): [0.75, 0.25]})
    >>> lenient = lambda problem: LenientPlan(problem, 0.5)
    >>> options = {"gamma": 1, "max_tokens": 64}
    >>> found = sampled_log_probs(target, draft, [0], [0, 0, 0], lenient, **options)
    >>> np.exp(found).round(3)  # the target's probabilities are 0.25
    array([0.5 , 0.25, 0.5 ])
    """
    check_models(target, draft, LanguageModel)
    (context,) = as_prompts([prompt], target.vocabulary)
    row = as_array(text, "the text", InvalidInputError)
    check_tokens(row, "the text", target.vocabulary, "give a sequence of token ids")
    tokens: tuple[int, ...] = tuple(row.tolist())
    most = as_integer(gamma, "gamma", 0)
    limit = len(tokens) if max_tokens is None else as_positive(max_tokens, "max_tokens")
    plan_of = rule if callable(rule) else PlanOfRule(named(rule, "plan"))
    if limit < len(tokens):
        raise InvalidInputError(
            f"the text has {len(tokens)} tokens, but max_tokens = {limit}; give the limit with "
            "which the text was decoded"
        )
    if not tokens:
        return ()
    aim, drafts = (
        Reader(model, how).read([context], [[tokens[:-1]]], None, whole=True)
        for model, how in ((target, sampling), (draft, draft_sampling or sampling))
    )
    probs = sampled_probs(aim, drafts, tokens, plan_of, gamma=most, limit=limit)
    return tuple(map(math.log, probs))


def sampled_probs(
    target_probs: ProbsAfter,
    draft_probs: ProbsAfter,
    text: tuple[int, ...],
    rule: PlanBuilder,
    *,
    gamma: int,
    limit: int,
) -> Iterator[Number]:
    """Yield the probability of each token given the earlier ones, in the models' own arithmetic."""
    # Probability that the step of the next token began at token s, for each possible s.
    begun: dict[int, Number] = {0: 1}
    for n, token in enumerate(text):
        aim = target_probs(0, text[:n])
        # A step that begins at token s has fewer drafts near the limit.
        drafting = {s: w for s, w in begun.items() if n - s < min(gamma, limit - s - 1)}
        ended: Number = sum(w for s, w in begun.items() if s not in drafting) * aim.of(token)
        accepted: Number = 0
        if drafting:
            accepted, replaced = one_draft(rule, draft_probs(0, text[:n]), aim, token)
            ended += sum(drafting.values()) * replaced
        after = {s: w * accepted for s, w in drafting.items()} | {n + 1: ended}
        if not (total := sum(after.values())):
            raise InvalidInputError(
                f"this rule never samples token {token} after {n} tokens of the text; check the "
                "models, the sampling parameters, the rule and gamma"
            )
        yield total
        begun = {s: w / total for s, w in after.items() if w}


def one_draft(
    rule: PlanBuilder, draft: SparseProbs, target: SparseProbs, token: int
) -> tuple[Number, Number]:
    """Return the probabilities that a token is accepted as the draft, and that it replaces one."""
    plan = build_tree_plan(rule, draft, target, 1)
    place = int((plan.problem.tokens == token).argmax())
    if plan.problem.tokens[place] != token:
        return 0, 0
    output: Number = plan.output_distribution()[place]
    drafted = draft.of(token)
    accepted = drafted * plan.conditional([token])[place] if drafted else drafted
    # Rounding may make the difference negative.
    return accepted, max(output - accepted, 0)
