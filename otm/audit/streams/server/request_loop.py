"""The loop of a server audit, which sends blocks of requests until the verdict is clear."""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from otm._core.listed_tokens import is_unclear
from otm.audit.report import UNDECIDED
from otm.audit.streams.server.answers import Completion, Prompt
from otm.audit.streams.server.client import Client
from otm.audit.streams.server.findings import Findings, Limits
from otm.audit.streams.server.group_evidence import Group
from otm.audit.streams.server.journal import Journal
from otm.audit.streams.server.references import (
    COUNTED_SINGLY,
    OTHERS,
    OwnLists,
    ProbsOf,
    count_pairs,
    count_tokens,
)
from otm.audit.streams.server.report import DeviantPrompt, SettingResult
from otm.audit.streams.server.settings import Setting, as_text
from otm.audit.streams.server.token_probs import TokenProbs
from otm.errors import EndpointError

PAIRED = 32
"""Number of requests of a block to each of two servers; in large blocks, more texts agree."""

MOST_ROWS = 2**12
"""Number of distributions that are stored before they are added up."""


def ask_in_threads(
    ask: Callable[[], Completion], number: int
) -> tuple[list[Completion], BaseException | None]:
    """Send `number` requests at once; return the answers before the first error, and the error.

    Python would wait for the threads of a pool after Ctrl-C; it does not wait for daemon threads.
    """
    if number == 1:
        return [ask()], None
    found: list[Completion | BaseException | None] = [None] * number

    def one(place: int) -> None:
        try:
            found[place] = ask()
        except BaseException as error:
            found[place] = error

    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers: list[Completion] = []
    for result in found:
        if not isinstance(result, Completion):
            return answers, result
        answers.append(result)
    return answers, None


@dataclass(eq=False)
class Run:
    """The audit of a server against probabilities or a second server."""

    prompts: tuple[Prompt, ...]
    settings: tuple[Setting, ...]
    limits: Limits
    # Number of tokens of each answer.
    tokens: int
    listed: int
    # None for a comparison with the second server.
    probs_of: ProbsOf | None
    drift: float
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
        sizes = {"prompt": len(self.prompts), "setting": len(self.settings), "place": self.tokens}
        least = min(1.0, *(setting.parameters.temperature for setting in self.settings))
        self.findings = Findings(self.limits, self.probs_of, sizes, self.drift, least)

    @property
    def block(self) -> int:
        """Number of requests of a block to each server, for one prompt and setting."""
        largest = max(setting.concurrency for setting in self.settings)
        return largest if self.probs_of is not None else max(PAIRED, largest)

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield the setting and the prompt of each block: all pairs in turn."""
        while True:
            for prompt in range(len(self.prompts)):
                for setting in range(len(self.settings)):
                    yield setting, prompt

    def work(
        self,
        clients: Sequence[Client],
        journal: Journal,
        report_requests: Callable[[int], None],
        on_answer: Callable[[Prompt, Completion, Setting], None],
    ) -> None:
        """Sample until the verdict is clear or the limit of requests is reached."""
        for setting, prompt in self.blocks():
            left = (self.limits.requests - self.requests) // len(clients)
            count = min(self.block, left)
            # The last block of pairs must be complete, because a resumed audit would pair
            # differently.
            cut = self.probs_of is None and 0 < count < self.block and self.requests > 0
            if count < 1 or cut or self.findings.verdict != UNDECIDED:
                break
            answers: list[list[Completion]] = []
            for server in range(len(clients)):
                answers.append(self._ask(clients, server, journal, (setting, prompt), count))
                self.requests += count
                report_requests(self.requests)
            self.add(setting, prompt, answers)
            for answer in answers[0]:
                on_answer(self.prompts[prompt], answer, self.settings[setting])

    def _ask(
        self,
        clients: Sequence[Client],
        server: int,
        journal: Journal,
        block: tuple[int, int],
        count: int,
    ) -> list[Completion]:
        """Read answers from the file first; then send requests, and store each readable answer."""
        setting, prompt = self.settings[block[0]], self.prompts[block[1]]

        def read(answer: Completion) -> Completion:
            if self.probs_of is None:
                return answer
            return replace(answer, rows=tuple(self.probs_of(prompt, answer, setting.parameters)))

        answers = [read(answer) for answer in journal.take(server, count)]
        while len(answers) < count:
            number = min(setting.concurrency, count - len(answers))
            new, error = ask_in_threads(
                lambda: clients[server].sample(prompt, setting.parameters, self.tokens), number
            )
            self._check_lengths(new)
            for answer in new:
                # Do not store an answer that raises an error, because each resumed audit would
                # raise it.
                answers.append(read(answer))
                journal.keep(server, answer)
            if error is not None:
                raise error
        return answers

    def add(self, setting: int, prompt: int, answers: Sequence[Sequence[Completion]]) -> None:
        """Add the evidence of a block."""
        parameters = self.settings[setting].parameters
        if self.probs_of is None:
            counted = count_pairs(answers[0], answers[1], parameters, self.listed)
        else:
            text = self.prompts[prompt]
            counted = [token for answer in answers[0] for token in count_tokens(text, answer)]
        self.findings.add(setting, prompt, parameters, answers[0], counted)
        for token in counted:
            self.seen[prompt, token.token] += 1
            if token.sampled is None:
                self.expected[prompt, token.other] += 1
            else:
                self._rows[prompt, token.sampled.row] += 1
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
        if not isinstance(self.probs_of, OwnLists) or self.requests:
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
        if sizes and sizes[-1] <= self.listed // 2 and min(sums) < 1 - self.limits.tv:
            usual = sizes[len(sizes) // 2]
            raise EndpointError(
                f"the server lists {usual} log-probabilities instead of {self.listed}; request no "
                f"more than it lists, with --logprobs {max(usual, 2)}"
            )

    def setting_results(self) -> tuple[SettingResult, ...]:
        """Summarise the evidence of each setting."""
        evidence, results = self.findings.evidence, []
        for number, setting in enumerate(self.settings):
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
        numbers = [i for i in range(len(self.prompts)) if ("prompt", i) in evidence.tallies]
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
            as_text(self.prompts[prompt]),
            float(evidence.tallies[worst].deviations.max()),
            evidence.log_e_value_of(worst) / math.log(10),
            token,
            seen.get(token, 0),
            expected.get(token, 0.0),
        )
