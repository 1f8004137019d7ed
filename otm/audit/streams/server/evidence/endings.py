"""Where the texts of a server end: at the first end token or stop string, or at the length limit.

A violation is certain and needs no statistics.  Servers return endings in different forms, and the
audit calls a text wrong only if no form explains it:

- A server lists the end token as the last token, as vLLM and SGLang do, or omits it.
- A server excludes the stop string from the text, includes it, or returns the whole last token.  So
  text after a stop string is a violation if it is at least as long as the last token, or if the
  server is known to cut texts at stop strings: it named a stop string that is not in the text.
- With several stop strings in the last token, a server may name any of them.
- A text shorter than `max_tokens` with finish_reason "length" may have filled the context.  This is
  a violation only if another text after the same prompt is longer.  The server may also have
  omitted the end token or stop string at the length limit.

The audit counts an end token only after the server has listed it where it stopped.  The audit
counts tokens of requests with stop strings only after a text with a stop string had `max_tokens`
tokens: a server that omits tokens of stop strings returns fewer.  `usage` does not show whether
tokens are missing, because it may count the returned tokens.  Both conditions depend on earlier
answers alone, so the e-value stays valid.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from otm._core.display.text import shown
from otm._core.listed_tokens import TOKEN_ID, is_unclear, token_name
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
        self.violation: EndingViolation | None = None
        self.end_names = frozenset(token_name(token) for token in request.end_ids)
        # End tokens that the server has not yet listed where it stopped.
        self.unlisted = self.end_names
        # Whether the server has listed, or omitted, tokens of a stop string, or named one.
        self._lists_stops, self._omits_stops, self._names_stops = False, False, False
        # Whether the server cuts texts at stop strings.
        self._cuts = False
        # Number of texts by kind, a field name of `EndingCounts`.
        self._kinds: Counter[str] = Counter()
        # Number of texts that stopped, but show neither an end token nor a stop string.
        self._unnamed = 0
        self._why_unclear = ""
        # Possible violations, which another form may explain, and the longest text of each prompt.
        self._unless_uncut: EndingViolation | None = None
        self._unless_full: dict[str, EndingViolation] = {}
        self._longest: dict[str, int] = {}

    @property
    def counts(self) -> EndingCounts:
        """Number of texts by ending so far."""
        kinds = self._kinds + Counter({self._kind_of_unnamed(): self._unnamed})
        return EndingCounts(
            texts=kinds.total(),
            at_end=kinds["at_end"],
            at_stop=kinds["at_stop"],
            full=kinds["full"],
            unclear=kinds["unclear"],
            violation=self.violation,
        )

    @property
    def hides_tokens(self) -> bool:
        """Whether the server may omit tokens of stop strings, so that no token counts."""
        return bool(self.request.stop) and (self._omits_stops or not self._lists_stops)

    def countable(self, row: TokenProbs | None) -> TokenProbs | None:
        """Return the distribution without tokens that the server may omit from its answers."""
        if row is None or self.hides_tokens:
            return None
        return row.without(self.unlisted) if self.unlisted else row

    def add(self, prompt: str, answer: Completion) -> None:
        """Check one text."""
        kind = self._kind(prompt, answer)
        self._longest[prompt] = max(self._longest.get(prompt, 0), len(answer.tokens))
        if kind is None:
            self._unnamed += 1
        else:
            self._kinds[kind] += 1
        found = self.violation
        if found is None and self._cuts:
            found = self._unless_uncut
        short = self._unless_full.get(prompt)
        if found is None and short is not None and len(short.tokens) < self._longest[prompt]:
            found = short
        self.violation = found

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
            why = self._why_unclear or self._why_unnamed()
            found.append(f"the endings of {counts.unclear:,} texts are unclear: {why}")
        if self._omits_stops:
            found.append(
                "the server omits tokens of stop strings, so that the distribution of the other "
                "tokens is unknown and no token counts: leave out stop (--stop)"
            )
        elif self.hides_tokens:
            found.append(
                "the server may omit tokens of stop strings, so that no token counts: reduce "
                "max_tokens (--max-tokens), so that stop strings end at the last token, and let "
                "the server name the stop string (`stop_reason`) or include it in the text"
            )
        return found

    def _unclear(self, why: str) -> str:
        self._why_unclear = self._why_unclear or why
        return "unclear"

    def _kind(self, prompt: str, answer: Completion) -> str | None:
        """Return the kind of the ending; None for an unnamed stop; note violations."""
        ending, number = answer.ending or NO_ENDING, len(answer.tokens)
        self._names_stops |= ending.stop_reason in self.request.stop
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
            return self._kind_of_stop(answer, ending)
        return self._kind_without_ending(prompt, answer)

    def _kind_without_ending(self, prompt: str, answer: Completion) -> str:
        """Return the kind of a text that did not stop; note a text that may be too short."""
        ending, number = answer.ending or NO_ENDING, len(answer.tokens)
        if number >= self.max_tokens:
            return "full"
        if ending.finish_reason == "length" and self._may_omit_last(ending, number):
            all_sampled = ending.sampled == self.max_tokens
            if all_sampled and self._may_omit_end(number) and not self.request.stop:
                return "at_end"
            return self._unclear(
                f'a text has {number} of {self.max_tokens} tokens and finish_reason "length", as '
                "if the server omitted an end token or a stop string at the length limit; let the "
                "server list all tokens"
            )
        if ending.finish_reason == "length" and not any(map(is_unclear, answer.tokens)):
            why = f"the text has {number} of {self.max_tokens} tokens and no ending"
            self._unless_full.setdefault(prompt, violation_of(TOO_SHORT, prompt, answer, why))
        return self._unclear(
            f"a text has {number} of {self.max_tokens} tokens and finish_reason "
            f"{shown(ending.finish_reason)}, as if the context were full or the request were "
            "cancelled; use shorter prompts or a smaller max_tokens"
        )

    def _may_omit_last(self, ending: Ending, number: int) -> bool:
        """Whether the server may omit tokens of an ending at the length limit."""
        all_sampled = ending.sampled == self.max_tokens
        return all_sampled or self.hides_tokens or self._may_omit_end(number)

    def _may_omit_end(self, number: int) -> bool:
        """Whether the last of `max_tokens` tokens may be an end token that the server omits."""
        last = number == self.max_tokens - 1 and number >= self.request.min_tokens
        return last and bool(self.unlisted)

    def _certain(self, mistake: str, prompt: str, answer: Completion, why: str) -> None:
        """Note a violation; only the first one is kept."""
        if self.violation is None:
            self.violation = violation_of(mistake, prompt, answer, why)

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
        # At the length limit, a server may list an end token that it omits elsewhere.
        if not behind and (ending.finish_reason == "stop" or first + 1 < self.max_tokens):
            self.unlisted -= {answer.tokens[first]}

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
        found = violation_of(mistake, prompt, answer, why)
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

    def _kind_of_stop(self, answer: Completion, ending: Ending) -> str | None:
        """Return the kind of an ending that shows neither an end token nor a stop string."""
        named = ending.stop_reason
        if named in self.request.stop or self._shows_stop(answer, ending):
            self._cuts = True
            self._note_listed(ending, len(answer.tokens))
            return "at_stop"
        if isinstance(named, int):
            if named in self.request.end_ids:
                return "at_end"
            return self._unclear(
                f"a text stopped at token {named}, which is not stated; state all end tokens "
                "(--end-token)"
            )
        return None

    def _shows_stop(self, answer: Completion, ending: Ending) -> bool:
        """Whether tokens, given as strings, contain a stop string that ends behind the text."""
        if any(token.startswith(TOKEN_ID) for token in answer.tokens):
            return False
        text = "".join(answer.tokens)
        # A server that omits tokens behind the text may list one that the text contains in part.
        behind = len("".join(answer.tokens[:-1])) >= len(ending.text)
        return behind and any(stop in text for stop in self.request.stop)

    def _kind_of_unnamed(self) -> str:
        """Return the kind of texts that stopped without a listed end token or named stop string."""
        may_end = bool(self.unlisted)
        may_stop = bool(self.request.stop) and not self._names_stops
        if may_end == may_stop:
            return "unclear"
        return "at_end" if may_end else "at_stop"

    def _why_unnamed(self) -> str:
        """Return the reason why texts that stopped without a name are unclear."""
        if self.unlisted:
            return (
                "the server neither lists end tokens nor names stop strings; audit end_tokens and "
                "stop one after the other"
            )
        return (
            "a text stopped without a listed end token or stop string; state all end tokens "
            "(--end-token)"
        )

    def _note_listed(self, ending: Ending, number: int) -> None:
        """Note whether the server lists all tokens of a text that stopped at a stop string."""
        self._omits_stops |= not number or (ending.sampled or 0) > number
        self._lists_stops |= ending.finish_reason == "stop" and number >= self.max_tokens


def violation_of(mistake: str, prompt: str, answer: Completion, why: str) -> EndingViolation:
    """Describe a text with a wrong ending."""
    ending = answer.ending or NO_ENDING
    return EndingViolation(mistake, prompt, answer.tokens, ending.text, ending.finish_reason, why)
