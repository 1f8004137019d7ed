"""Parameters of requests beside `SamplingParameters`: penalties, bias, stop strings, end tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from otm._core.display.reprs import ShortRepr
from otm._core.display.text import shown
from otm._core.numbers import as_integer, as_real, whole
from otm.audit.processors import Processor, bias, in_order, min_length, penalties
from otm.errors import InvalidInputError, InvalidParameterError
from otm.models import LanguageModel

LARGEST_PENALTY = 2.0
"""Largest absolute frequency or presence penalty that servers accept."""

LARGEST_BIAS = 100.0
"""Largest absolute bias that servers accept; vLLM replaces larger values by it."""

LARGEST_ID = 10**7 - 1
"""Largest token id; tables of all tokens up to it fit into memory."""

ENDINGS = ("stop", "end_tokens")
"""Parameters that do not change the distribution of a token."""

LONGEST_STOP = 200
"""Largest number of characters of a stop string."""


@dataclass(frozen=True)
class RequestParameters(ShortRepr):
    """Parameters that all requests of an audit have, beside temperature and truncation.

    The order is that of vLLM (docstring of `vllm.v1.sample.sampler.Sampler`): `min_tokens`,
    `logit_bias`, `repetition_penalty`, `frequency_penalty` and `presence_penalty` act on the
    logits.  Then the temperature, min-p, top-k and top-p follow.  The formulas are those of
    `otm.audit.processors`: only the repetition penalty counts tokens of the prompt.

    Parameters
    ----------
    frequency_penalty, presence_penalty : float, optional
        From -2 to 2; 0 changes nothing.
    repetition_penalty : float, optional
        Above 0; 1 changes nothing.  It multiplies or divides logits, which log-probabilities do not
        contain.  Therefore it requires a local model or a second server.
    logit_bias : mapping from int to float, optional
        Number from -100 to 100 that is added to the logit of each token id.
    min_tokens : int, optional
        Number of tokens before which no end token may be sampled; it requires `end_tokens`.
    stop : str or sequence of str, optional
        Strings at which texts must stop.
    end_tokens : int or sequence of int, optional
        Ids of all end tokens of the model.  If stated, requests do not set `ignore_eos`, and the
        audit checks where the texts end.

    Raises
    ------
    InvalidParameterError
        If a value is outside its range; if `min_tokens` is stated without `end_tokens`, or together
        with `stop`, because servers differ on stop strings within the first tokens.

    Examples
    --------
    >>> print(RequestParameters(frequency_penalty=0.5, logit_bias={7: -1}, stop="."))
    frequency_penalty 0.5, logit_bias {7: -1.0}, stop ('.',)
    """

    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    min_tokens: int = 0
    stop: str | Sequence[str] = ()
    end_tokens: int | Sequence[int] = ()

    def __post_init__(self) -> None:
        # The dataclass is frozen, so the checked values go through its dictionary.
        checked = vars(self)
        for name in ("frequency_penalty", "presence_penalty"):
            checked[name] = as_real(
                checked[name], name, least=-LARGEST_PENALTY, most=LARGEST_PENALTY
            )
        checked["repetition_penalty"] = as_real(
            self.repetition_penalty, "repetition_penalty", above=0
        )
        if not isinstance(self.logit_bias, Mapping):
            raise InvalidParameterError(
                f"logit_bias = {shown(self.logit_bias)}; give a mapping from token ids to numbers"
            )
        checked["logit_bias"] = {
            as_integer(token, "a token of logit_bias", 0, LARGEST_ID): as_real(
                value, "a bias", least=-LARGEST_BIAS, most=LARGEST_BIAS
            )
            for token, value in self.logit_bias.items()
        }
        checked["min_tokens"] = as_integer(self.min_tokens, "min_tokens", 0)
        checked["stop"] = _as_stop(self.stop)
        checked["end_tokens"] = tuple(
            as_integer(token, "an end token", 0, LARGEST_ID)
            for token in _as_items(self.end_tokens, "end_tokens", "one token id or several")
        )
        if self.min_tokens and not self.end_tokens:
            raise InvalidParameterError(
                "min_tokens requires the ids of the model's end tokens; give end_tokens "
                "(--end-token)"
            )
        if self.min_tokens and self.stop:
            raise InvalidParameterError(
                "min_tokens and stop are stated together, but servers differ on stop strings "
                "within the first tokens; audit min_tokens and stop one after the other"
            )

    def __str__(self) -> str:
        return ", ".join(f"{name} {vars(self)[name]}" for name in self.stated)

    @property
    def stated(self) -> tuple[str, ...]:
        """Names of the parameters that differ from their neutral values."""
        neutral = {each.name: vars(NO_PARAMETERS)[each.name] for each in fields(self)}
        return tuple(name for name, value in neutral.items() if vars(self)[name] != value)

    @property
    def changes_logits(self) -> bool:
        """Whether a parameter changes the distribution of a token."""
        return not {*self.stated} <= {*ENDINGS}

    @property
    def checks_endings(self) -> bool:
        """Whether the audit checks where texts end."""
        return not {*self.stated}.isdisjoint(ENDINGS)

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids of all end tokens."""
        return tuple(_as_items(self.end_tokens, "end_tokens", "one token id or several"))

    @cached_property
    def processor(self) -> Processor:
        """The parameters as one logits processor, in the order of vLLM."""
        parts = [min_length(self.min_tokens, end) for end in self.end_ids]
        return in_order(
            *parts,
            bias(self.logit_bias),
            penalties(
                repetition=self.repetition_penalty,
                presence=self.presence_penalty,
                frequency=self.frequency_penalty,
            ),
        )


def scaled(request: RequestParameters, names: Collection[str], factor: float) -> RequestParameters:
    """Multiply the effect of some parameters on the logits; 0 makes every parameter neutral."""
    changed: dict[str, Any] = {}
    for name in {*names}.intersection(request.stated):
        value, neutral = vars(request)[name], vars(NO_PARAMETERS)[name]
        if factor == 0:
            changed[name] = neutral
        elif name == "logit_bias":
            changed[name] = {token: factor * added for token, added in value.items()}
        else:
            changed[name] = value**factor if name == "repetition_penalty" else factor * value
    return replace(request, **changed)


def request_fields(request: RequestParameters) -> dict[str, Any]:
    """Return the fields of a request in JSON; `end_tokens` is not sent."""
    values = {name: vars(request)[name] for name in request.stated if name != "end_tokens"}
    if "logit_bias" in values:
        values["logit_bias"] = {str(token): x for token, x in request.logit_bias.items()}
    if "stop" in values:
        values["stop"] = list(request.stop)
    return values


def logit_changes(request: RequestParameters, output: Sequence[int]) -> dict[int, float]:
    """Return the numbers that are added to the logits of tokens after an output.

    A repetition penalty is not included: it does not add a number.
    """
    ids = sorted({*output, *request.processor.tokens})
    if not ids or not request.changes_logits:
        return {}
    shifted = request.processor(output, np.zeros(ids[-1] + 1))
    return {token: float(shifted[token]) for token in ids if shifted[token]}


def _as_items(value: Any, name: str, expected: str) -> list[Any]:
    """Return one value or several as a list."""
    if isinstance(value, str) or whole(value) is not None:
        return [value]
    if not isinstance(value, Iterable):
        raise InvalidParameterError(f"{name} = {shown(value)}; give {expected}")
    return list(value)


def _as_stop(stop: Any) -> tuple[str, ...]:
    """Check stop strings: texts of valid Unicode, not empty and not too long."""
    strings = _as_items(stop, "stop", "one text or several")
    for text in strings:
        valid = isinstance(text, str) and text.encode(errors="ignore").decode() == text
        if not valid or not 0 < len(text) <= LONGEST_STOP:
            raise InvalidParameterError(
                f"stop contains {shown(text)}; give texts of 1 to {LONGEST_STOP} characters"
            )
    return tuple(strings)


class Against(NamedTuple):
    """Reference of an audit: a second server, a local model, or else the server's own lists."""

    server: bool
    model: LanguageModel | None
    # Whether the server accepts and returns only texts.
    texts: bool
    # Whether the lists are made after all parameters.
    processed: bool


def as_request(request: Any) -> RequestParameters:
    """Return request parameters, or raise."""
    if not isinstance(request, RequestParameters):
        raise InvalidParameterError(
            f"request = {shown(request)}; give a RequestParameters, such as "
            "RequestParameters(frequency_penalty=0.5)"
        )
    return request


def check_request(request: RequestParameters, against: Against, max_tokens: int) -> None:
    """Raise if the audit cannot check the parameters against its reference."""
    if request.min_tokens > max_tokens:
        raise InvalidParameterError(
            f"min_tokens = {request.min_tokens} is above max_tokens = {max_tokens}; increase "
            "max_tokens"
        )
    if request.checks_endings and against.texts:
        raise InvalidInputError(
            "the endings of a server that returns only texts cannot be checked; leave out stop and "
            "end_tokens (--stop, --end-token), or let the server return token ids"
        )
    if request.stop and against.server:
        raise InvalidInputError(
            "stop strings cannot be used with a second server, because servers differ on which "
            "tokens of a stopped text they return; leave out stop or the reference"
        )
    own = against.model is None and not against.server
    if request.repetition_penalty == 1 or against.server or (own and against.processed):
        return
    if against.model is None:
        raise InvalidInputError(
            "a repetition penalty multiplies logits and counts tokens of the prompt, but lists "
            "have only log-probabilities; compare with a model (--model) or a second server "
            "(--reference)"
        )
    if against.model.returns_probs:
        raise InvalidInputError(
            "a repetition penalty multiplies logits, but the model returns probabilities; give a "
            "model that returns logits, or a second server (reference)"
        )


NO_PARAMETERS = RequestParameters()
"""Parameters that change nothing."""
