"""A model that is conditioned on a finite automaton: the target, given that the text is accepted.

A mask excludes the tokens that an automaton forbids, and normalises each distribution on its own.
So masked texts do not have the model's distribution given that the automaton accepts the text.  The
texts of a conditioned model have this distribution.  The conditioned model multiplies the
probability of each token by the probability h that the model's continuation is accepted, and
normalises (docs/theory/constraints.md).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import zeros
from otm._core.display.text import shown
from otm._core.numbers import as_integer
from otm.errors import InvalidInputError, InvalidParameterError, ProblemTooLargeError
from otm.models.base import StatelessModel
from otm.models.table import TableModel

LARGEST_SEARCH = 1_000_000
"""Limit on the number of pairs of a context and a state that one distribution may need."""

SMALLEST = 1e-290
"""Smallest probability of acceptance in floats, above the numbers that lose digits."""

State = Hashable
_Node = tuple[tuple[int, ...], State]


class ConditionedModel(StatelessModel):
    """The distribution of a model's next tokens, given that an automaton accepts the text.

    A lossless decoding loop with this target, and any drafts, samples texts with the distribution
    of the model's own texts, given that the automaton accepts the text.

    Parameters
    ----------
    model : StatelessModel
        The model.  For a `TableModel` the time grows with the number of its contexts; for other
        models it grows with the number of possible texts.
    transitions : mapping
        For each state of the automaton, the next state after each allowed token, as for
        `otm.audit.processors.automaton`.
    length : int
        Number of new tokens of a text; with an end token, the largest number.
    start : hashable, optional
        State after the prompt.
    accepting : iterable
        States in which a text may end.
    end : int, optional
        The end token; if given, a text ends with it.  The automaton needs no transitions for it.
    prompt_length : int, optional
        Number of tokens of every prompt, which the automaton does not read.

    Raises
    ------
    InvalidParameterError
        If an argument is outside its range, `transitions` is not a mapping of mappings, a state is
        not hashable, or `accepting` is not a collection of states.

    Notes
    -----
    After a text that can no longer be accepted, or that has ended, the distribution is the model's
    own.  A lossless loop samples from no such row, because it rejects the draft before the row, or
    has ended.

    Examples
    --------
    The two tokens of a text must be equal.  A mask would leave the first token at 1/2 and 1/2,
    because a mask does not look ahead:

    >>> from fractions import Fraction as F
    >>> model = TableModel({(): [F(1, 2), F(1, 2)], (0,): [F(1, 4), F(3, 4)]})
    >>> equal = {0: {0: "0", 1: "1"}, "0": {0: "done"}, "1": {1: "done"}}
    >>> twice = ConditionedModel(model, equal, 2, accepting=["done"])
    >>> [str(x) for x in twice.probs((1,))], [str(x) for x in twice.probs((1, 0))]
    (['1/3', '2/3'], ['1', '0'])
    """

    def __init__(
        self,
        model: StatelessModel,
        transitions: Mapping[Any, Mapping[int, Any]],
        length: int,
        *,
        start: State = 0,
        accepting: Iterable[State],
        end: int | None = None,
        prompt_length: int = 1,
    ) -> None:
        if not isinstance(model, StatelessModel):
            raise InvalidParameterError(
                f"the model is a {type(model).__name__}; give a StatelessModel, such as a "
                "TableModel: the condition needs distributions after all continuations"
            )
        states = _as_states(transitions, start, accepting)
        self._model, self.vocabulary = model, model.vocabulary
        self._end = None if end is None else as_integer(end, "end", 0, model.vocabulary - 1)
        self._table = {
            state: {
                as_integer(x, "a token of the automaton", 0, model.vocabulary - 1): then
                for x, then in row.items()
                if x != self._end
            }
            for state, row in transitions.items()
        }
        self._start, self._accepting = start, states
        self._length = as_integer(length, "length", 1)
        self._prompt_length = as_integer(prompt_length, "prompt_length", 0)
        # the last tokens that the model reads; None: all of them
        self._order = model.order if isinstance(model, TableModel) else None
        self._known: list[dict[_Node, Any]] = [{} for _ in range(self._length + 1)]

    def probs(self, context: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return the distribution of the token that follows a context.

        Parameters
        ----------
        context : tuple of int
            The prompt and the new tokens.

        Returns
        -------
        array [V]
            Probabilities as floats or fractions, as from the model.

        Raises
        ------
        InvalidInputError
            If the model gives no accepted text a positive probability after the prompt.
        ProblemTooLargeError
            If more than a million contexts are needed, or h is too small for floats.
        """
        context = tuple(context)
        own = self._model.probs(context)
        new = context[self._prompt_length :]
        if len(context) < self._prompt_length or len(new) >= self._length:
            return own
        state, remaining = self._start, self._length - len(new)
        for token in new:
            if token not in self._table.get(state, {}):
                return own
            state = self._table[state][token]
        weights = zeros(own.size, own)
        for token, value in self._after((self._suffix(context), state), remaining).items():
            weights[token] = self._times(own[token], value)
        total = weights.sum()
        if total > 0:
            return np.asarray(weights / total)
        if new:
            return own
        raise InvalidInputError(
            f"after the prompt {shown(context)} the model gives no text that the automaton accepts "
            f"within {self._length} tokens a positive probability; change the automaton or `length`"
        )

    def acceptance(self, context: tuple[int, ...]) -> Any:
        """Return the probability h that the automaton accepts the model's own text after a prompt.

        Parameters
        ----------
        context : tuple of int
            The prompt, of `prompt_length` tokens.

        Returns
        -------
        float or Fraction
            The probability h.

        Raises
        ------
        InvalidInputError
            If the context does not have `prompt_length` tokens.
        ProblemTooLargeError
            If more than a million contexts are needed, or h is too small for floats.

        Examples
        --------
        >>> from fractions import Fraction as F
        >>> model = TableModel({(): [F(1, 4), F(3, 4)]})
        >>> ConditionedModel(model, {0: {0: 0}}, 3, accepting=[0]).acceptance((1,))
        Fraction(1, 64)
        """
        context = tuple(context)
        if len(context) != self._prompt_length:
            raise InvalidInputError(
                f"the context {shown(context)} has {len(context)} tokens; give a prompt of "
                f"`prompt_length` = {self._prompt_length} tokens"
            )
        own = self._model.probs(context)
        after = self._after((self._suffix(context), self._start), self._length)
        return sum((self._times(own[token], value) for token, value in after.items()), 0 * own[0])

    def _suffix(self, context: tuple[int, ...]) -> tuple[int, ...]:
        """Return the tokens on which the model's distribution depends."""
        return context if self._order is None else context[max(len(context) - self._order, 0) :]

    def _steps(self, node: _Node) -> dict[int, _Node]:
        """List the node after each allowed token, without the end token."""
        suffix, state = node
        row = self._table.get(state, {})
        return {token: (self._suffix((*suffix, token)), then) for token, then in row.items()}

    def _after(self, node: _Node, remaining: int) -> dict[int, Any]:
        """Return the probability of acceptance after each allowed token."""
        self._search(node, remaining)
        known = self._known[remaining - 1]
        after = {token: known[then] for token, then in self._steps(node).items()}
        if self._end is not None and node[1] in self._accepting:
            after[self._end] = 1
        return after

    def _search(self, node: _Node, remaining: int) -> None:
        """Compute h of all nodes that can follow a node, from the ends of the texts backwards."""
        layers: list[set[_Node]] = [{node}]
        for left in range(remaining - 1, -1, -1):
            nodes = {then for x in layers[-1] for then in self._steps(x).values()}
            layers.append(nodes - self._known[left].keys())
            if sum(map(len, layers)) > LARGEST_SEARCH:
                raise ProblemTooLargeError(
                    f"the condition needs more than {LARGEST_SEARCH:,} contexts; use a TableModel "
                    "of a lower order, or a smaller `length`"
                )
        for left, nodes in enumerate(reversed(layers[1:])):
            known = self._known[left]
            for here in nodes:
                known[here] = self._value(here, left)

    def _value(self, node: _Node, left: int) -> Any:
        """Return h of a node with a number of tokens left, from the nodes with one token less."""
        accepted = node[1] in self._accepting
        if left == 0:
            return int(accepted and self._end is None)
        own = self._model.probs(node[0])
        value = own[self._end] if accepted and self._end is not None else 0 * own[0]
        known = self._known[left - 1]
        for token, then in self._steps(node).items():
            value = value + self._times(own[token], known[then])
        return value

    def _times(self, own: Any, after: Any) -> Any:
        """Multiply a probability by h after the token; raise if floats would lose digits."""
        term = own * after
        if term < SMALLEST and own > 0 and 0 < after < 1 and isinstance(term, float):
            raise ProblemTooLargeError(
                f"an accepted text of {self._length} tokens has a probability below "
                f"{SMALLEST:g}, which floats cannot hold; use fractions, or a smaller `length`"
            )
        return term


def _as_states(transitions: Any, start: Any, accepting: Any) -> frozenset[State]:
    """Return the accepting states; raise unless the parts of an automaton have their types."""
    rows: list[Any] = list(transitions.values()) if isinstance(transitions, Mapping) else [None]
    if not all(isinstance(row, Mapping) for row in rows):
        raise InvalidParameterError(
            f"transitions = {shown(transitions)}; give a mapping from states to mappings from "
            "tokens to states, such as {0: {1: 0}}"
        )
    if isinstance(accepting, str) or not isinstance(accepting, Iterable):
        raise InvalidParameterError(
            f"accepting = {shown(accepting)}; give a collection of states, such as [0]"
        )
    final = list(accepting)
    for state in (start, *final, *(then for row in rows for then in row.values())):
        if not isinstance(state, Hashable):
            raise InvalidParameterError(
                f"the state {shown(state)} is not hashable; name states by numbers or strings"
            )
    return frozenset(final)
