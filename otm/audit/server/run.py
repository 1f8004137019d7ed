"""The audit's loop: blocks of requests, evidence after each, until it decides or is spent."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from otm.audit.report import LOSSLESS, NOT_LOSSLESS, UNDECIDED
from otm.audit.server.against import LawsOf, Row, rows_from_laws, rows_from_pairs
from otm.audit.server.client import Client, Completion, Prompt
from otm.audit.server.evidence import EVERYWHERE, Evidence, Group
from otm.audit.server.journal import Journal
from otm.audit.server.report import MISSED, Deviant, Line
from otm.audit.server.settings import Setting, as_text

PAIRED = 32
"""Requests of a block to each of two servers: more of them share a text for longer."""


LEFT_OUT = 0.25
"""Share of tokens that may not count in an audit that calls a server lossless."""


def in_threads(
    ask: Callable[[], Completion], number: int
) -> tuple[list[Completion], BaseException | None]:
    """Ask so many times at once; return the answers before the first error, and the error.

    Threads of a pool would be waited for after Ctrl-C; these are not.
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


@dataclass(frozen=True)
class Limits:
    """When the audit ends."""

    requests: int
    tv: float
    level: float


@dataclass(eq=False)
class Run:
    """The audit of a server, against laws or a second server."""

    prompts: tuple[Prompt, ...]
    settings: tuple[Setting, ...]
    limits: Limits
    tokens: int  # of each answer
    listed: int
    laws_of: LawsOf | None  # None: against the second server
    drift: float
    requests: int = 0
    left_out: int = 0
    evidence: Evidence = field(init=False)
    # [prompt, token]: how often tokens came, and how often they should have
    seen: dict[tuple[int, str], float] = field(default_factory=dict)
    expected: dict[tuple[int, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = {"prompt": len(self.prompts), "setting": len(self.settings), "place": self.tokens}
        width = 1.0 if self.laws_of is not None else 2.0
        self.evidence = Evidence(sizes, width=width, drift=self.drift)

    @property
    def block(self) -> int:
        """Requests of a block to each server: of one prompt and setting."""
        largest = max(setting.concurrency for setting in self.settings)
        return largest if self.laws_of is not None else max(PAIRED, largest)

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Choose setting and prompt of each block: all pairs in turn."""
        while True:
            for prompt in range(len(self.prompts)):
                for setting in range(len(self.settings)):
                    yield setting, prompt

    @property
    def verdict(self) -> str:
        """What can be said so far."""
        if self.evidence.largest >= -math.log(self.limits.level):
            return NOT_LOSSLESS
        bound = self.evidence.bound(MISSED)
        return LOSSLESS if bound <= self.limits.tv and not self.much_left_out else UNDECIDED

    @property
    def much_left_out(self) -> bool:
        """Whether too many tokens do not count to say anything of all; pairs are no choice."""
        counted = self.evidence.tallies[EVERYWHERE].count
        return self.laws_of is not None and self.left_out > LEFT_OUT * (self.left_out + counted)

    def work(
        self,
        clients: Sequence[Client],
        journal: Journal,
        tell: Callable[[int], None],
        also: Callable[[Prompt, Completion, Setting], None],
    ) -> None:
        """Sample until the verdict stands, or the requests are spent."""
        for setting, prompt in self.blocks():
            left = (self.limits.requests - self.requests) // len(clients)
            count = min(self.block, left)
            # of pairs the last block is whole too: resumed, it would be paired otherwise
            cut = self.laws_of is None and 0 < count < self.block and self.requests > 0
            if count < 1 or cut or self.verdict != UNDECIDED:
                break
            answers = []
            for server in range(len(clients)):
                asked = self._ask(clients, server, journal, (setting, prompt), count)
                answers.append(asked)
                self.requests += count
                tell(self.requests)
            self.add(setting, prompt, answers)
            for answer in answers[0]:
                also(self.prompts[prompt], answer, self.settings[setting])

    def _ask(
        self,
        clients: Sequence[Client],
        server: int,
        journal: Journal,
        block: tuple[int, int],
        count: int,
    ) -> list[Completion]:
        """Take answers from the file first; then ask, so many at a time, and keep each."""
        setting, prompt = self.settings[block[0]], self.prompts[block[1]]
        answers = journal.take(server, count)
        while len(answers) < count:
            number = min(setting.concurrency, count - len(answers))
            new, error = in_threads(
                lambda: clients[server].sample(prompt, setting.parameters, self.tokens), number
            )
            journal.keep(server, new)
            answers += new
            if error is not None:
                raise error
        return answers

    def add(self, setting: int, prompt: int, answers: Sequence[Sequence[Completion]]) -> None:
        """Add the evidence of a block."""
        parameters = self.settings[setting].parameters
        rows: list[Row] = []
        if self.laws_of is None:
            rows = rows_from_pairs(answers[0], answers[1], parameters, self.listed)
        else:
            for answer in answers[0]:
                laws = self.laws_of(self.prompts[prompt], answer, parameters)
                rows += rows_from_laws(answer, laws)
        self.left_out += sum(len(answer.tokens) for answer in answers[0]) - len(rows)
        groups: list[Group] = [("prompt", prompt), ("setting", setting)]
        self.evidence.add((row.deviation, [*groups, ("place", row.place)]) for row in rows)
        for row in rows:
            for total, counts in (self.seen, row.seen), (self.expected, row.expected):
                for token, count in counts.items():
                    total[prompt, token] = total.get((prompt, token), 0.0) + count

    def lines(self) -> tuple[Line, ...]:
        """Say what each setting shows."""
        lines = []
        for number, setting in enumerate(self.settings):
            tally = self.evidence.tallies.get(("setting", number))
            if tally is not None:
                log10 = self.evidence.log_e_value_of(("setting", number)) / math.log(10)
                worst = float(tally.deviations.max())
                lines.append(Line(str(setting), tally.count, worst, log10))
        return tuple(lines)

    def most_deviant(self) -> Deviant | None:
        """Find the prompt with the largest e-value, and its token that is furthest off."""
        prompts = [
            n for kind, n in self.evidence.tallies if kind == "prompt" and isinstance(n, int)
        ]
        if not prompts:
            return None
        worst = max(prompts, key=lambda n: self.evidence.log_e_value_of(("prompt", n)))
        tokens = sorted(token for n, token in {**self.seen, **self.expected} if n == worst)

        def distance(token: str) -> float:
            seen = self.seen.get((worst, token), 0.0)
            expected = self.expected.get((worst, token), 0.0)
            return abs(seen - expected) / math.sqrt(expected + 1)

        token = max(tokens, key=distance)
        return Deviant(
            as_text(self.prompts[worst]),
            float(self.evidence.tallies["prompt", worst].deviations.max()),
            self.evidence.log_e_value_of(("prompt", worst)) / math.log(10),
            token,
            round(self.seen.get((worst, token), 0.0)),
            self.expected.get((worst, token), 0.0),
        )
