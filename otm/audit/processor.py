"""A logits processor of one token's logits, for audits, and for the rows of a decoding loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.tensors import like, to_host
from otm.decoding.reading import LogitsProcessor, Path
from otm.errors import InvalidInputError

Logits = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Processor:
    """A logits processor that depends on the tokens so far.

    Parameters
    ----------
    function : callable
        Function of the tokens (a tuple), logits [V] that it may change, and the prompt's length; it
        returns logits [V].
    tokens : tuple of int, optional
        Tokens with a special role; the audit adds models in which these tokens are possible.

    Examples
    --------
    >>> double = Processor(lambda tokens, logits, prompt_length: 2 * logits)
    >>> double((0,), [-1.0, -2.0]).tolist()
    [-2.0, -4.0]
    """

    function: Callable[[Path, Logits, int], Any]
    tokens: Path = ()

    def __call__(self, tokens: Sequence[int], logits: Any, prompt_length: int = 0) -> Logits:
        """Process the logits of one token.

        Parameters
        ----------
        tokens : sequence of int
            Prompt and output so far.
        logits : array-like [V]
            Logits of the next token; the call does not change them.
        prompt_length : int, optional
            Number of tokens of the prompt.

        Returns
        -------
        float64 array [V]
            The processed logits; −∞ excludes a token.

        Raises
        ------
        InvalidInputError
            If the logits are not those of one token.
        """
        copy = np.array(to_host(logits), dtype=np.float64)
        if copy.ndim != 1:
            raise InvalidInputError(
                f"logits of shape {copy.shape}; give those of one token [V]. For the option "
                "logits_processor of a loop, which gets many rows, use `for_prompts(prompts)`"
            )
        text = tuple(map(int, tokens))
        return np.asarray(self.function(text, copy, int(prompt_length)), dtype=np.float64)

    def for_prompts(self, prompts: Sequence[Sequence[int]]) -> LogitsProcessor:
        """Return the processor in the form of the option `logits_processor` of `otm.decoding`.

        Parameters
        ----------
        prompts : sequence of sequences of int
            The prompts that will be decoded, in their order.

        Returns
        -------
        callable
            Function of token ids [M, L], scores [M, V] and the prompt number [M] of each row, as
            arrays or tensors; it returns scores [M, V].

        Examples
        --------
        >>> from otm.audit.processors import automaton
        >>> from otm.decoding import speculative
        >>> from otm.models import TableModel
        >>> model, prompts = TableModel({(): [0.5, 0.25, 0.25]}), [[0], [0, 1]]
        >>> grammar = automaton({0: {1: 1, 2: 1}, 1: {0: 0}}).for_prompts(prompts)
        >>> options = {"rule": "block", "max_tokens": 6, "seed": 0}
        >>> speculative(model, model, prompts, logits_processor=grammar, **options).sequences
        ((2, 0, 2, 0, 1, 0), (2, 0, 2, 0, 2, 0))
        """
        starts = [len(prompt) for prompt in prompts]

        def process(tokens: Any, scores: Any, numbers: Any) -> Any:
            ids = np.asarray(to_host(tokens)).tolist()
            rows = zip(ids, scores, np.asarray(to_host(numbers)).tolist(), strict=True)
            found = [self(text, row, starts[number]) for text, row, number in rows]
            return like(scores, np.array(found))

        return process
