"""The loop of a server audit, which sends blocks of requests until the verdict is clear."""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from otm._core.listed_tokens import is_unclear
from otm.audit.streams.server.answers import Completion
from otm.audit.streams.server.blocks import Block, Request
from otm.audit.streams.server.client import Client
from otm.audit.streams.server.distributions.references import (
    COUNTED_SINGLY,
    OTHERS,
    OwnLists,
    count_pairs,
    count_tokens,
    token_ids,
)
from otm.audit.streams.server.distributions.token_probs import TokenProbs
from otm.audit.streams.server.evidence.findings import Findings
from otm.audit.streams.server.evidence.group_evidence import Group
from otm.audit.streams.server.journal import Journal
from otm.audit.streams.server.plan import Plan
from otm.audit.streams.server.report import DeviantPrompt, SettingResult
from otm.audit.streams.server.settings import as_text
from otm.audit.streams.server.simultaneous import ask_in_threads
from otm.errors import EndpointError

MOST_ROWS = 2**12
"""Number of distributions that are stored before they are added up."""


@dataclass(eq=False)
class Run:
    """The audit of a server against probabilities or a second server."""

    plan: Plan
    requests: int = 0
    findings: Findings = field(init=False)
    # Observed counts of tokens, by prompt and token.
    seen: Counter[tuple[int, str]] = field(default_factory=Counter)
    # Expected counts of tokens, by prompt and token.
    expected: defaultdict[tuple[int, str], float] = field(
        default_factory=lambda: defaultdict(float)
    )
    # Distributions that are not yet added to `expected`.
    _rows: Counter[tuple[int, TokenProbs]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.findings = Findings(self.plan)

    def work(
        self,
        clients: Sequence[Client],
        journal: Journal,
        report_requests: Callable[[int], None],
        on_answer: Callable[[int, Request, Completion], None],
    ) -> None:
        """Sample until the verdict is clear or the limit of requests is reached."""
        for planned in self.plan.blocks():
            left = (self.plan.limits.requests - self.requests) // len(clients)
            count = min(self.plan.block, left)
            # The last block of pairs must be complete, because a resumed audit would pair
            # differently.
            cut = self.plan.probs_of is None and 0 < count < self.plan.block and self.requests > 0
            if count < 1 or cut or self.findings.finished:
                break
            block = replace(planned, requests=planned.requests[:count])
            answers: list[list[Completion]] = []
            for server in range(len(clients)):
                answers.append(self._ask(clients, server, journal, block))
                self.requests += count
                report_requests(self.requests)
            self.add(block, answers)
            for server, texts in enumerate(answers):
                for request, answer in zip(block.requests, texts, strict=True):
                    on_answer(server, request, answer)

    def _ask(
        self, clients: Sequence[Client], server: int, journal: Journal, block: Block
    ) -> list[Completion]:
        """Read answers from the file first; then send requests, and store each readable answer."""
        requests = block.requests
        # In a mixed block, a text may have the length of another request.
        most = max(request.tokens for request in requests)

        def ask(request: Request) -> Completion:
            prompt, tokens = self.plan.prompts[request.prompt], request.tokens
            return clients[server].sample(
                prompt, request.parameters, tokens, request.seed, most=most
            )

        def read(answer: Completion, request: Request) -> Completion:
            if self.plan.request.end_tokens:
                # Strings do not show which tokens are end tokens.
                token_ids(answer)
            if self.plan.probs_of is None:
                return answer
            rows = self.plan.probs_of(self.plan.prompts[request.prompt], answer, request.law)
            if self.findings.endings is not None:
                rows = [self.findings.endings.countable(row) for row in rows]
            return replace(answer, rows=tuple(rows))

        stored = journal.take(server, len(requests))
        answers = [read(*pair) for pair in zip(stored, requests, strict=False)]
        while len(answers) < len(requests):
            sent = requests[len(answers) : len(answers) + block.concurrency]
            new, error = ask_in_threads([functools.partial(ask, request) for request in sent])
            self._check_lengths(new)
            for answer, request in zip(new, sent, strict=False):
                # Do not store an answer that raises an error, because each resumed audit would
                # raise it.
                answers.append(read(answer, request))
                journal.keep(server, answer)
            if error is not None:
                raise error
        return answers

    def add(self, block: Block, answers: Sequence[Sequence[Completion]]) -> None:
        """Add the evidence of a block."""
        requests, checked = block.requests, self.findings.endings
        if self.plan.probs_of is None:
            first, ends = requests[0], frozenset[str]() if checked is None else checked.end_names
            counted = count_pairs(
                answers[0], answers[1], first.parameters, self.plan.listed, dropped=ends
            )
            for token in counted:
                token.prompt = first.prompt
        else:
            counted = [
                token
                for request, answer in zip(requests, answers[0], strict=True)
                for token in count_tokens(self.plan.prompts[request.prompt], answer, request.prompt)
            ]
        for request, answer in zip(requests, answers[0], strict=True):
            self.findings.bet(self.plan.prompts[request.prompt], request.law, answer)
        self.findings.add(block, answers[0], counted)
        for request, answer in zip(requests, answers[0], strict=True):
            self.findings.check_ending(
                as_text(self.plan.prompts[request.prompt]), answer, request.tokens
            )
        for token in counted:
            self.seen[token.prompt, token.token] += 1
            if token.sampled is None:
                self.expected[token.prompt, token.other] += 1
            else:
                self._rows[token.prompt, token.sampled.row] += 1
        if len(self._rows) > MOST_ROWS:
            self._add_expected()

    def _add_expected(self) -> None:
        """Add the expected count of each token over the stored distributions."""
        for (prompt, row), count in self._rows.items():
            likely = row.probs[:COUNTED_SINGLY].tolist()
            for token, prob in zip(row.tokens, likely, strict=False):
                self.expected[prompt, token] += count * prob
            self.expected[prompt, OTHERS] += count * (1 - math.fsum(likely))
        self._rows.clear()

    def _check_lengths(self, answers: Sequence[Completion]) -> None:
        """Raise if all first lists of strings have at most half of the requested length."""
        if not isinstance(self.plan.probs_of, OwnLists) or self.requests:
            return
        # Incomplete characters make lists shorter.
        lists = [
            entries
            for answer in answers
            for entries in answer.lists
            if not any(map(is_unclear, entries))
        ]
        sums = [math.fsum(map(math.exp, entries.values())) for entries in lists]
        sizes = sorted(map(len, lists))
        if sizes and sizes[-1] <= self.plan.listed // 2 and min(sums) < 1 - self.plan.limits.tv:
            usual = sizes[len(sizes) // 2]
            raise EndpointError(
                f"the server lists {usual} log-probabilities instead of {self.plan.listed}; "
                f"request no more than it lists, with --logprobs {max(usual, 2)}"
            )

    def setting_results(self) -> tuple[SettingResult, ...]:
        """Summarise the evidence of each setting."""
        evidence, results = self.findings.evidence, []
        names: list[object] = [*self.plan.settings]
        if self.plan.mixture is not None:
            names.append(f"mixed block, {self.plan.mixture.concurrency} at a time")
        for number, setting in enumerate(names):
            group: Group = ("setting", number)
            if (tally := evidence.tallies.get(group)) is not None:
                worst, log_e = float(tally.deviations.max()), evidence.log_e_value_of(group)
                results.append(
                    SettingResult(str(setting), tally.count, worst, log_e / math.log(10))
                )
        return tuple(results)

    def most_deviant(self) -> DeviantPrompt | None:
        """Find the prompt with the largest e-value, and its most deviant token."""
        evidence = self.findings.evidence
        numbers = [i for i in range(len(self.plan.prompts)) if ("prompt", i) in evidence.tallies]
        if not numbers:
            return None
        self._add_expected()
        prompt = max(numbers, key=lambda i: evidence.log_e_value_of(("prompt", i)))
        worst: Group = ("prompt", prompt)
        expected = {token: n for (i, token), n in self.expected.items() if i == prompt}
        seen = {token: n for (i, token), n in self.seen.items() if i == prompt}

        def distance(token: str) -> float:
            off = abs(seen.get(token, 0) - expected.get(token, 0.0))
            return off / math.sqrt(expected.get(token, 0.0) + 1)

        token = max(sorted(seen | expected), key=distance)
        return DeviantPrompt(
            as_text(self.plan.prompts[prompt]),
            float(evidence.tallies[worst].deviations.max()),
            evidence.log_e_value_of(worst) / math.log(10),
            token,
            seen.get(token, 0),
            expected.get(token, 0.0),
        )
