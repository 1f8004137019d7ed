"""Logits processors for audits of loops, such as penalties, bias, min-p, bad words and grammars.

Each function returns a `Processor`, which takes the tokens so far, the logits [V] of the next token
and the length of the prompt.  Give the same processor to the loop and to `otm.audit.loop`.  Token
ids outside the vocabulary of a model are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from otm._core.display.text import shown
from otm._core.numbers import as_integer, as_real
from otm.audit.processor import Logits, Processor
from otm.decoding.reading import Path
from otm.errors import InvalidParameterError

__all__ = [
    "Processor",
    "automaton",
    "bad_words",
    "bias",
    "in_order",
    "min_length",
    "min_p",
    "penalties",
]


def penalties(
    *, repetition: float = 1.0, presence: float = 0.0, frequency: float = 0.0
) -> Processor:
    """Penalise tokens that occur in the text.

    If a token occurs in the prompt or output, its logit is divided by `repetition` if it is
    positive, and multiplied by it otherwise.  If a token occurs c > 0 times in the output,
    `presence` + c · `frequency` is then subtracted.

    Parameters
    ----------
    repetition : float, optional
        Above 0; 1 changes nothing.  Defined by Keskar et al. 2019, as in transformers
        (`RepetitionPenaltyLogitsProcessor`) and vLLM.
    presence, frequency : float, optional
        As in the API of OpenAI and in vLLM; 0 changes nothing.

    Returns
    -------
    Processor
        The processor.

    Raises
    ------
    InvalidParameterError
        If a number is not finite, or `repetition` is not above 0.

    Examples
    --------
    >>> penalties(repetition=2, presence=0.5)((0, 1), [-1.0, -1.0, -1.0], prompt_length=1).tolist()
    [-2.0, -2.5, -1.0]
    """
    factor = as_real(repetition, "repetition", above=0)
    once, each = as_real(presence, "presence"), as_real(frequency, "frequency")

    def process(tokens: Path, logits: Logits, start: int) -> Logits:
        for token in {x for x in tokens if x < logits.size}:
            logits[token] *= 1 / factor if logits[token] > 0 else factor
            if count := tokens[start:].count(token):
                logits[token] -= once + count * each
        return logits

    return Processor(process)


def bias(values: Mapping[int, float]) -> Processor:
    """Add a number to the logits of some tokens, as `logit_bias` of OpenAI and vLLM does.

    Parameters
    ----------
    values : mapping from int to float
        The number for each token; −∞ excludes the token.

    Returns
    -------
    Processor
        The processor.

    Raises
    ------
    InvalidParameterError
        If a key is not a token, or a value is not a number below +∞.

    Examples
    --------
    >>> bias({1: -2})((0,), [-1.0, -1.0]).tolist()
    [-1.0, -3.0]
    """
    checked: dict[int, float] = {}
    for token, value in _as_mapping(values, "values").items():
        excluded = isinstance(value, float) and value == -math.inf
        number = value if excluded else as_real(value, "a bias")
        checked[as_integer(token, "a token of the bias", 0)] = number

    def process(tokens: Path, logits: Logits, start: int) -> Logits:
        for token, value in checked.items():
            if token < logits.size:
                logits[token] += value
        return logits

    return Processor(process, tuple(checked))


def min_p(p: float) -> Processor:
    """Keep the tokens with at least p times the largest probability, as in transformers and vLLM.

    Parameters
    ----------
    p : float
        From 0 to 1.

    Returns
    -------
    Processor
        The processor.

    Raises
    ------
    InvalidParameterError
        If p is outside its range.

    Examples
    --------
    >>> min_p(0.5)((0,), [-1.0, -1.5, -2.0]).tolist()
    [-1.0, -1.5, -inf]
    """
    share = as_real(p, "p", least=0, most=1)

    def process(tokens: Path, logits: Logits, start: int) -> Logits:
        return np.where(np.exp(logits - logits.max()) >= share, logits, -np.inf)

    return Processor(process)


def bad_words(words: Iterable[Sequence[int]]) -> Processor:
    """Exclude the last token of a word if the text so far ends with the word's other tokens.

    This is `bad_words_ids` of transformers and `bad_words` of vLLM.  Words may begin in the prompt.

    Parameters
    ----------
    words : iterable of sequences of int
        Words of at least one token each.

    Returns
    -------
    Processor
        The processor.

    Raises
    ------
    InvalidParameterError
        If a word is empty or contains anything but tokens.

    Examples
    --------
    >>> bad_words([(0, 1)])((1, 0), [-1.0, -1.0]).tolist()
    [-1.0, -inf]
    """
    checked: list[Path] = []
    for word in _as_sequence(words, "words"):
        checked.append(
            tuple(as_integer(x, "a token of a bad word", 0) for x in _as_sequence(word, "a word"))
        )
    if () in checked:
        raise InvalidParameterError("a bad word is empty; give words of at least one token")

    def process(tokens: Path, logits: Logits, start: int) -> Logits:
        for *before, last in checked:
            if last < logits.size and tokens[len(tokens) - len(before) :] == tuple(before):
                logits[last] = -np.inf
        return logits

    return Processor(process, tuple(x for word in checked for x in word))


def min_length(length: int, end: int) -> Processor:
    """Exclude the end token while the output has fewer than `length` tokens.

    This is `min_new_tokens` of transformers and `min_tokens` of vLLM.

    Parameters
    ----------
    length : int
        Smallest number of output tokens before the end token, at least 0.
    end : int
        The end token.

    Returns
    -------
    Processor
        The processor.

    Raises
    ------
    InvalidParameterError
        If a number is not an integer, or below 0.

    Examples
    --------
    >>> min_length(2, end=1)((0, 0), [-1.0, -1.0], prompt_length=1).tolist()
    [-1.0, -inf]
    """
    least, last = as_integer(length, "length", 0), as_integer(end, "end", 0)

    def process(tokens: Path, logits: Logits, start: int) -> Logits:
        if len(tokens) - start < least and last < logits.size:
            logits[last] = -np.inf
        return logits

    return Processor(process, (last,))


def automaton(
    transitions: Mapping[Any, Mapping[int, Any]],
    *,
    start: Any = 0,
    accepting: Iterable[Any] = (),
    end: int | None = None,
) -> Processor:
    """Allow only the tokens that a finite automaton allows after the output: a grammar.

    Grammars of vLLM (`structured_outputs`) and of other engines are masks of this kind.

    Parameters
    ----------
    transitions : mapping
        For each state, the next state after each allowed token.
    start : hashable, optional
        State at the beginning of the output.
    accepting : iterable, optional
        States in which the end token is allowed too.
    end : int, optional
        The end token; the automaton needs no transitions for it.

    Returns
    -------
    Processor
        The processor.  It allows all tokens after an output that the automaton does not allow, or
        that has ended.  A loop must not use such a row: a draft before it is rejected, or the text
        has ended.

    Raises
    ------
    InvalidParameterError
        If `start` has no transitions, or a key or `end` is not a token.

    Examples
    --------
    >>> pairs = automaton({0: {0: 1}, 1: {1: 0}})  # 0 1 0 1 ...
    >>> pairs((1, 0), [-1.0, -1.0], prompt_length=1).tolist()
    [-inf, -1.0]
    """
    finals = frozenset(_as_sequence(accepting, "accepting"))
    table = {
        state: {
            as_integer(x, "a token of the automaton", 0): then
            for x, then in _as_mapping(row, f"transitions[{state!r}]").items()
        }
        for state, row in _as_mapping(transitions, "transitions").items()
    }
    if start not in table:
        raise InvalidParameterError(
            f"start = {shown(start)} is not a state; give one of {shown(list(table))}"
        )
    ending = [] if end is None else [as_integer(end, "end", 0)]
    tokens_of_all = {x for row in table.values() for x in row} | {*ending}

    def process(tokens: Path, logits: Logits, first: int) -> Logits:
        state: Any = start
        for token in tokens[first:]:
            if token not in table.get(state, {}):
                return logits
            state = table[state][token]
        allowed = [*table.get(state, {}), *(ending if state in finals else [])]
        mask = np.isin(np.arange(logits.size), allowed)
        return np.where(mask, logits, -np.inf)

    return Processor(process, tuple(sorted(tokens_of_all)))


def in_order(*processors: Processor) -> Processor:
    """Apply processors one after another.

    Parameters
    ----------
    *processors : Processor
        The processors; the first one acts first.

    Returns
    -------
    Processor
        The processor.

    Raises
    ------
    InvalidParameterError
        If an argument is not a Processor.

    Examples
    --------
    >>> in_order(bias({0: 1}), penalties(repetition=2))((0,), [-3.0, -1.0]).tolist()
    [-4.0, -1.0]
    """
    for each in processors:
        if not isinstance(each, Processor):
            raise InvalidParameterError(
                f"a processor is {shown(each)}; give objects of Processor, as Processor(function)"
            )

    def process(tokens: Path, logits: Logits, start: int) -> Logits:
        for processor in processors:
            logits = processor(tokens, logits, start)
        return logits

    return Processor(process, tuple(dict.fromkeys(x for p in processors for x in p.tokens)))


def _as_mapping(value: Any, name: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise InvalidParameterError(f"{name} = {shown(value)}; give a mapping, such as a dict")
    return value


def _as_sequence(value: Any, name: str) -> Iterable[Any]:
    if not isinstance(value, Iterable) or isinstance(value, str):
        raise InvalidParameterError(f"{name} = {shown(value)}; give a sequence, such as a tuple")
    return value
