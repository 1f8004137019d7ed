"""Where the texts of a server end: at the first end token or stop string, or at the length limit.

A violation is certain and needs no statistics.  Servers return endings in different forms, and the
audit calls a text wrong only if no form explains it:

- A server lists the end token as the last token, as vLLM and SGLang do, or omits it.
- A server excludes the stop string from the text, includes it, or returns the whole last token.  So
  text after a stop string is a violation if it is at least as long as the last token, or if the
  server is known to cut texts at stop strings: it named a stop string that is not in the text.
- With several stop strings in the last token, a server may name any of them.
- A text shorter than `max_tokens` with finish_reason "length" may have filled the context.  This is
  a violation only if another text after the same prompt is longer.

The audit counts an end token as sampled only after the server has listed one, and tokens of
requests with stop strings only after a stopped text had as many tokens as the server's `usage`
says.  Both conditions depend on earlier answers alone, so the e-value stays valid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from otm._core.display.text import shown
from otm._core.listed_tokens import TOKEN_ID, is_unclear
from otm.audit.adapters.base import AFTER_END, AFTER_STOP, TOO_SHORT
from otm.audit.streams.server.answers import Completion, Ending
from otm.audit.streams.server.distributions.token_probs import TokenProbs
from otm.audit.streams.server.request_parameters import RequestParameters

FEWEST_ENDS = 20
"""Smallest number of texts of each stated kind of ending for the verdict "lossless"."""

AT_CAP = "stop string missed at the length limit"
EARLY_END = "end token before min_tokens"
WRONG_REASON = "wrong finish_reason"

NO_ENDING = Ending("", None)


@dataclass(frozen=True)
class EndingViolation:
    """A text with a wrong ending: a certain counterexample."""

    # Name of the mistake.
    mistake: str
    prompt: str
    tokens: tuple[str, ...]
    text: str
    finish_reason: str | None
    # What is wrong, with its place in the tokens or the text.
    explanation: str

    def __str__(self) -> str:
        return (
            f"{self.mistake}: {self.explanation}; prompt {self.prompt}, tokens "
            f"{shown(list(self.tokens))}, text {shown(self.text)}, finish_reason "
            f"{shown(self.finish_reason)}"
        )


@dataclass(frozen=True)
class EndingCounts:
    """Number of texts by ending, and the first violation."""

    texts: int
    at_end: int
    at_stop: int
    # Texts of `max_tokens` tokens.
    full: int
    # Texts whose ending the audit cannot judge.
    unclear: int
    violation: EndingViolation | None


class EndingCheck:
    """Check the endings of all texts of an audit."""

    def __init__(self, request: RequestParameters, max_tokens: int) -> None:
        self.request, self.max_tokens = request, max_tokens
        self.counts = EndingCounts(0, 0, 0, 0, 0, None)
        self.end_names = frozenset(f"{TOKEN_ID}{token}" for token in request.end_tokens)
        # Whether the server has listed an end token, and all tokens of a stopped text.
        self._lists_ends, self._lists_stops = False, False
        # Whether the server cuts texts at stop strings.
        self._cuts = False
        self._why_unclear = ""
        # Possible violations, which another form may explain, and the longest text of each prompt.
        self._unless_uncut: EndingViolation | None = None
        self._unless_full: dict[str, EndingViolation] = {}
        self._longest: dict[str, int] = {}

    def countable(self, row: TokenProbs | None) -> TokenProbs | None:
        """Return the distribution without tokens that the server may omit from its answers."""
        if row is None or (self.request.stop and not self._lists_stops):
            return None
        return row if self._lists_ends or not self.end_names else row.without(self.end_names)

    def add(self, prompt: str, answer: Completion) -> None:
        """Check one text."""
        kind = self._kind(prompt, answer)
        self._longest[prompt] = max(self._longest.get(prompt, 0), len(answer.tokens))
        self.counts = replace(
            self.counts, texts=self.counts.texts + 1, **{kind: getattr(self.counts, kind) + 1}
        )
        found = self.counts.violation
        if found is None and self._cuts:
            found = self._unless_uncut
        short = self._unless_full.get(prompt)
        if found is None and short is not None and len(short.tokens) < self._longest[prompt]:
            found = short
        self.counts = replace(self.counts, violation=found)

    def missing(self) -> list[str]:
        """List the unmet conditions of the verdict "lossless"."""
        found, counts = [], self.counts
        wanted = (
            ("an end token", counts.at_end, self.end_names),
            ("a stop string", counts.at_stop, self.request.stop),
        )
        found += [
            f"only {count:,} texts ended at {what}, but {FEWEST_ENDS} are needed: increase "
            "max_tokens (--max-tokens), or use prompts whose texts end sooner"
            for what, count, stated in wanted
            if stated and count < FEWEST_ENDS
        ]
        if counts.unclear:
            found.append(
                f"the endings of {counts.unclear:,} texts are unclear: {self._why_unclear}"
            )
        return found

    def _unclear(self, why: str) -> str:
        self._why_unclear = self._why_unclear or why
        return "unclear"

    def _kind(self, prompt: str, answer: Completion) -> str:
        """Return the kind of the ending, a field name of `EndingCounts`; note violations."""
        ending, number = answer.ending or NO_ENDING, len(answer.tokens)
        tokens = enumerate(answer.tokens)
        first = next((place for place, token in tokens if token in self.end_names), None)
        place = number if first is None else first
        if place < self.request.min_tokens and (
            first is not None or ending.finish_reason == "stop"
        ):
            why = f"the text ends after {place} tokens; min_tokens is {self.request.min_tokens}"
            self._certain(EARLY_END, prompt, answer, why)
        if first is not None:
            self._check_end(prompt, answer, first)
            return "at_end"
        until = self._until_stop(ending)
        if until is not None:
            return self._kind_with_stop(prompt, answer, until)
        if ending.finish_reason == "stop":
            return self._kind_of_stop(ending, number)
        if number >= self.max_tokens:
            return "full"
        if ending.finish_reason == "length" and not any(map(is_unclear, answer.tokens)):
            why = f"the text has {number} of {self.max_tokens} tokens and no ending"
            self._unless_full.setdefault(prompt, _violation(TOO_SHORT, prompt, answer, why))
        return self._unclear(
            f"a text has {number} of {self.max_tokens} tokens and finish_reason "
            f"{shown(ending.finish_reason)}, as if the context were full or the request were "
            "cancelled; use shorter prompts or a smaller max_tokens"
        )

    def _certain(self, mistake: str, prompt: str, answer: Completion, why: str) -> None:
        """Note a violation; only the first one is kept."""
        if self.counts.violation is None:
            found = _violation(mistake, prompt, answer, why)
            self.counts = replace(self.counts, violation=found)

    def _check_end(self, prompt: str, answer: Completion, first: int) -> None:
        """Note a violation if the first end token is not the end, or has a wrong reason."""
        ending, behind = answer.ending or NO_ENDING, len(answer.tokens) - 1 - first
        if behind:
            why = f"{behind} tokens follow the end token at place {first}"
            self._certain(AFTER_END, prompt, answer, why)
        elif ending.finish_reason == "length" and first + 1 < self.max_tokens:
            why = (
                f"the text ends with an end token after {first + 1} of {self.max_tokens} tokens, "
                'but finish_reason is "length"'
            )
            self._certain(WRONG_REASON, prompt, answer, why)
        self._lists_ends |= not behind

    def _kind_with_stop(self, prompt: str, answer: Completion, until: int) -> str:
        """Return the kind of a text with a stop string; note a violation if text follows it."""
        ending = answer.ending or NO_ENDING
        behind = ending.text[until:]
        if not behind:
            self._note_listed(ending, len(answer.tokens))
            return "at_stop"
        mistake = AT_CAP if ending.finish_reason == "length" else AFTER_STOP
        why = f"{shown(behind)} follows the stop string that ends at character {until}"
        last = answer.tokens[-1] if answer.tokens else ""
        if not last.startswith(TOKEN_ID) and len(behind) >= len(last) > 0:
            self._certain(mistake, prompt, answer, why)
            return "at_stop"
        if self._may_be_named_otherwise(ending):
            return self._unclear("a text contains one stop string, but stopped at another one")
        found = _violation(mistake, prompt, answer, why)
        self._unless_uncut = self._unless_uncut or found
        if self._cuts:
            return "at_stop"
        return self._unclear(
            "text follows a stop string, and may belong to the same token; let the server exclude "
            "stop strings from its texts"
        )

    def _until_stop(self, ending: Ending) -> int | None:
        """Return where the first stop string of a text ends; None if there is none."""
        text, stops = ending.text, self.request.stop
        ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
        if not ends:
            return None
        first = min(ends)
        # One token may complete a longer stop string that contains the first one.
        longer = any(text.endswith(stop) and len(text) - len(stop) <= first for stop in stops)
        return len(text) if longer else first

    def _may_be_named_otherwise(self, ending: Ending) -> bool:
        """Whether the server may have stopped at another stop string in the same token."""
        stops = [stop for stop in self.request.stop if stop in ending.text]
        named = ending.stop_reason in stops
        return ending.finish_reason == "stop" and len(self.request.stop) > 1 and not named

    def _kind_of_stop(self, ending: Ending, number: int) -> str:
        """Return the kind of an ending that shows neither an end token nor a stop string."""
        if ending.stop_reason in self.request.stop:
            self._cuts = True
            self._note_listed(ending, number)
            return "at_stop"
        if (
            isinstance(ending.stop_reason, int)
            and ending.stop_reason not in self.request.end_tokens
        ):
            return self._unclear(
                f"a text stopped at token {ending.stop_reason}, which is not stated; state all end "
                "tokens (--end-token)"
            )
        if self.end_names and not self.request.stop and not self._lists_ends:
            return "at_end"
        if self.request.stop and not self.end_names:
            self._note_listed(ending, number)
            return "at_stop"
        return self._unclear(
            "a text stopped without a listed end token or stop string; state all end tokens "
            "(--end-token)"
        )

    def _note_listed(self, ending: Ending, number: int) -> None:
        """Note that the server lists all tokens of stopped texts."""
        self._lists_stops |= ending.sampled == number


def _violation(mistake: str, prompt: str, answer: Completion, why: str) -> EndingViolation:
    ending = answer.ending or NO_ENDING
    return EndingViolation(mistake, prompt, answer.tokens, ending.text, ending.finish_reason, why)
