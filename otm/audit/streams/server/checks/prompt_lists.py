"""Compare the lists of answers with lists of the same texts that were not decoded with drafts.

Such lists come from the server itself, which reads an answer as a prompt (`echo`), from the second
server, or from a local model.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from otm._core.listed_tokens import token_name
from otm.audit.report import NOT_LOSSLESS, UNDECIDED
from otm.audit.streams.server.answers import Completion, Prompt
from otm.audit.streams.server.blocks import PLAIN
from otm.audit.streams.server.checks.kept_answers import (
    AnswerSample,
    KeptAnswer,
    ListFormat,
    Pair,
    difference,
)
from otm.audit.streams.server.checks.list_causes import AFTER_TEMPERATURE
from otm.audit.streams.server.checks.list_checks import (
    MOST_ROUNDING,
    NOT_CHECKED,
    NOT_CONSISTENT,
    ListCheck,
    check_answers,
    compare_pairs,
)
from otm.audit.streams.server.checks.prompt_reader import PromptReader
from otm.audit.streams.server.distributions.references import (
    CountedToken,
    OwnLists,
    count_tokens,
    model_logits,
    token_ids,
)
from otm.audit.streams.server.evidence.findings import Findings
from otm.audit.streams.server.evidence.group_evidence import GroupEvidence
from otm.audit.streams.server.simultaneous import ask_in_threads
from otm.errors import EndpointError
from otm.models import LanguageModel

MOST_READ = 64
"""Number of answers that are compared with lists of prompts or of a model."""

REPEATED = 8
"""Number of texts that are read again, at the same time, to observe rounding."""

ORDER_SEED = 2_026
"""Seed of the choice of answers."""


@dataclass(frozen=True)
class ReadAnswer:
    """An answer, and a server's lists of the whole text as a prompt."""

    kept: KeptAnswer
    # Number of the answer's first token in the whole text.
    first: int
    lists: tuple[Mapping[str, float], ...]

    def count_tokens(self, own: OwnLists, prompt: Prompt) -> list[CountedToken]:
        """Compare the tokens of the answer with the lists of the prompt."""
        tokens = self.kept.answer.tokens
        text = Completion(tokens, tuple(map(dict, self.lists[self.first :][: len(tokens)])))
        rows = tuple(own(prompt, text, self.kept.request.law))
        return count_tokens(prompt, replace(text, rows=rows))


def check_prompts(
    reader: PromptReader,
    chosen: Sequence[KeptAnswer],
    answers: Sequence[KeptAnswer],
    form: ListFormat,
    what: str,
) -> tuple[ListCheck, list[ReadAnswer]]:
    """Compare lists of chosen answers with lists of the same texts as prompts.

    Causes of wrong lists are searched among all answers.
    """
    found = [(kept, reader.read(kept)) for kept in chosen if kept.answer.tokens]
    read = [ReadAnswer(kept, *lists) for kept, lists in found if lists is not None]
    pairs = [
        Pair(each.kept, place, other, 1.0, each.lists, each.first + place)
        for each in read
        for place, entries in enumerate(each.kept.answer.lists)
        if entries and (other := each.lists[each.first + place])
    ]
    name = f"lists of {what}"
    if not pairs:
        why = "the server does not return lists of prompts (`echo`)"
        if reader.supported and found:
            why = "the server splits the texts into other tokens as prompts"
        return ListCheck(name, NOT_CHECKED, 0, why), read
    rounding = min(_repeated_difference(reader, read[:REPEATED], form.listed), MOST_ROUNDING)
    return compare_pairs(name, pairs, form, rounding, other=f"in {what}", kept=answers), read


def _repeated_difference(reader: PromptReader, read: Sequence[ReadAnswer], listed: int) -> float:
    """Read some texts again, at the same time; return the largest difference."""

    def again(each: ReadAnswer) -> Completion:
        found = reader.read(each.kept)
        return Completion((), () if found is None else tuple(map(dict, found[1])))

    lists, _ = ask_in_threads([functools.partial(again, each) for each in read])
    return max(
        (
            difference(one, two, listed).size
            for first, second in zip(read, lists, strict=False)
            # The last list is that of a sampled token.
            for one, two in zip(first.lists[:-1], second.lists[:-1], strict=False)
            if one and two
        ),
        default=0.0,
    )


@dataclass(frozen=True)
class ListFindings:
    """Checks of a server's lists, and what they mean for the verdict about its tokens."""

    checks: Sequence[ListCheck] = ()
    # Tokens, each with its prompt's list, if the server's own lists are wrong.
    counted: Sequence[CountedToken] | None = None
    # Whether tokens were compared with lists after temperature as if they were before it.
    after_temperature: bool = False

    def verdict(self, findings: Findings) -> tuple[str, tuple[str, ...]]:
        """Return the verdict about the tokens, and the reasons.

        If the tokens were compared with wrong lists, they are compared with the lists of prompts
        too.  The verdict is then "not lossless" if they deviate from both, otherwise "undecided".
        It is also "undecided" if the lists have another temperature than the audit expected.
        """
        if self.after_temperature and findings.verdict == NOT_LOSSLESS:
            return UNDECIDED, (
                "the server's lists are after temperature, but the audit expected lists before it: "
                "say so with --processed (processed=True)",
            )
        if self.counted is None:
            return findings.verdict, findings.reasons()
        evidence = GroupEvidence({}, drift=max(findings.drift, findings.error))
        evidence.add((token.deviation, ()) for token in self.counted)
        limit = -math.log(findings.limits.level)
        if findings.verdict == NOT_LOSSLESS and evidence.largest >= limit:
            return NOT_LOSSLESS, findings.reasons()
        return UNDECIDED, (
            "the server's lists are wrong, so they do not show whether its tokens are right: "
            "compare with a second server (--reference) or a model (--model)",
        )


def check_log_probs(
    readers: Sequence[PromptReader],
    seen: AnswerSample,
    form: ListFormat,
    own: OwnLists | None,
    models: tuple[LanguageModel | None, LanguageModel | None],
) -> ListFindings:
    """Check the log-probabilities of the first server in all ways that the references allow.

    `own` has the distributions of the tokens, if these came from the server's lists.
    """
    answers, prompts = seen.of(0), readers[0].prompts
    form = form if own is None else replace(form, error=own.error)
    checks = check_answers(answers, form)
    if len(checks) == 1:
        return ListFindings(checks)
    # Lists of prompts have no temperature and no truncation.
    plain = [each for each in answers if not form.processed or each.request.law == PLAIN]
    order = np.random.default_rng(ORDER_SEED).permutation(len(plain))[:MOST_READ]
    chosen = [plain[number] for number in sorted(order)]
    found, read = check_prompts(readers[0], chosen, answers, form, "the same texts as prompts")
    checks.append(found)
    if len(readers) > 1:
        what = "the same texts as prompts of the reference server"
        second, _ = check_prompts(readers[1], chosen, answers, form, what)
        if second.verdict == NOT_CHECKED:
            second = _compare_answers(answers, seen.of(1), form)
        checks.append(second)
    target, draft = models
    if target is not None:
        checks.append(_compare_model(target, draft, prompts, chosen, form))
    if own is None:
        return ListFindings(checks)
    if not form.processed and any(AFTER_TEMPERATURE in check.cause for check in checks):
        return ListFindings(checks, after_temperature=True)
    if found.verdict != NOT_CONSISTENT:
        return ListFindings(checks)
    fresh = OwnLists(form.listed, processed=form.processed, chat=form.chat)
    counted = [each.count_tokens(fresh, prompts[each.kept.request.prompt]) for each in read]
    return ListFindings(checks, [token for tokens in counted for token in tokens])


def _compare_answers(
    answers: Sequence[KeptAnswer], others: Sequence[KeptAnswer], form: ListFormat
) -> ListCheck:
    """Compare lists of two servers after the same text."""
    known = {
        form.key(each, place): (entries, each.request.parameters.temperature)
        for each in others
        for place, entries in enumerate(each.answer.lists)
        if entries
    }
    pairs = [
        Pair(each, place, *known[form.key(each, place)])
        for each in answers
        for place, entries in enumerate(each.answer.lists)
        if entries and form.key(each, place) in known
    ]
    name = "lists of the reference server after the same text"
    return compare_pairs(name, pairs, form, other="from the reference server")


def _compare_model(
    target: LanguageModel,
    draft: LanguageModel | None,
    prompts: Sequence[Prompt],
    chosen: Sequence[KeptAnswer],
    form: ListFormat,
) -> ListCheck:
    """Compare the lists of answers with those of a local model."""
    name, pairs = "lists of the local model", []
    try:
        for each in chosen:
            prompt = prompts[each.request.prompt]
            lists = _model_lists(target, prompt, each.answer, form.listed)
            drafts = [] if draft is None else _model_lists(draft, prompt, each.answer, form.listed)
            pairs += [
                Pair(each, place, lists[place], 1.0, lists, place, dict(*drafts[place : place + 1]))
                for place, entries in enumerate(each.answer.lists)
                if entries
            ]
    except EndpointError as reason:
        return ListCheck(name, NOT_CHECKED, 0, str(reason))
    return compare_pairs(name, pairs, form, other="from the model", kept=chosen)


def _model_lists(
    model: LanguageModel, prompt: Prompt, answer: Completion, listed: int
) -> list[Mapping[str, float]]:
    """List the most probable tokens and the sampled token, by a local model."""
    rows = model_logits(model, prompt, answer)
    logs = rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)
    found: list[Mapping[str, float]] = []
    for row, token in zip(logs, token_ids(answer), strict=True):
        top = np.argsort(-row, kind="stable")[:listed]
        found.append({token_name(i): float(row[i]) for i in (token, *top)})
    return found
