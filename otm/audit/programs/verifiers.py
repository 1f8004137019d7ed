"""Adapters of programs that verify chains, or decode."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs
from otm._core.display.text import shown
from otm._core.numbers import as_positive, whole
from otm.audit.adapters.base import Adapter, Drafts, Instance, Source, max_tokens
from otm.audit.adapters.chains import PAIRS_OF_CHAINS
from otm.audit.adapters.drafts import PADDING, chain_probs, draw_chain, probs_of
from otm.audit.adapters.functions import LARGEST_SEED
from otm.audit.adapters.loops import as_end
from otm.audit.programs.messages import Session, to_json
from otm.audit.runs import MOST_UNIFORMS
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path

IMPOSSIBLE = -1e30
"""Logit of a token of probability 0, because JSON has no infinity; its exponential is 0."""

SHIFTS = {"target": (1.25, 0.5), "draft": (-0.75, 0.25)}
"""Constant that is added to the logits / temperature of row 0, and its increase by row.

Without them, a program that does not normalise its softmax could be right by chance.
"""


class Rows:
    """How a program gets rows: as probabilities, or as logits with a temperature."""

    def __init__(self, temperature: float | None) -> None:
        self._temperature = temperature

    def key(self, model: str) -> str:
        """Return the name of the rows of a model in a message."""
        return model if self._temperature is None else f"{model}_logits"

    @property
    def extra(self) -> str:
        """Part of a request that states the temperature."""
        return "" if self._temperature is None else f',"temperature":{to_json(self._temperature)}'

    def values(self, probs: Probs, model: str) -> Any:
        """Return rows [..., R, V] as lists of probabilities or of logits."""
        if self._temperature is None:
            return probs.tolist()
        first, step = SHIFTS[model]
        with np.errstate(divide="ignore"):
            logits = self._temperature * np.log(probs)
        logits += self._temperature * (first + step * np.arange(probs.shape[-2])[:, None])
        return np.maximum(logits, IMPOSSIBLE).tolist()


class ProgramAdapter(Adapter):
    """Base class of adapters of programs."""

    exact = False

    def __init__(self, session: Session, rows: Rows, name: str, *, seeded: bool) -> None:
        self.name, self.repeatable = name, not seeded
        self._session, self._rows = session, rows

    def close(self) -> None:
        """End the program; the next run starts it again."""
        self._session.close()


class ProgramOfChains(ProgramAdapter):
    """A program that verifies one chain, or several, in each request."""

    def __init__(self, *arguments: Any, several: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.several = several
        self.more = (PAIRS_OF_CHAINS,) if several else ()
        self._rows_of = lru_cache(maxsize=256)(self._write_rows)

    def drafted(self, instance: Instance, source: Randomness) -> Drafts:
        """Draw one chain or several independent ones."""
        chains = tuple(draw_chain(instance, source) for _ in range(instance.k))
        return chains if self.several else chains[0]

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draw drafts, then let the program verify them."""
        return _as_path(self._session.ask([self._request(instance, source)])[0])

    def _request(self, instance: Instance, source: Randomness) -> str:
        rows = self._rows_of(instance, self.drafted(instance, source))
        return f"{rows},{self._random(source, instance.gamma * instance.k + 2)}"

    def _random(self, source: Randomness, count: int) -> str:
        if self.repeatable:
            return f'"uniforms":{to_json(source(count).tolist())}'
        return f'"seed":{int(source(1)[0] * LARGEST_SEED)}'

    def _write_rows(self, instance: Instance, drafts: Any) -> str:
        chains = drafts if self.several else (drafts,)
        both = zip(*(chain_probs(instance, chain, False) for chain in chains), strict=True)
        parts = []
        for model, of_chains in zip(("target", "draft"), both, strict=True):
            values = self._rows.values(np.array(of_chains), model)
            text = to_json(values if self.several else values[0])
            parts.append(f'"{self._rows.key(model)}":{text}')
        return f'{",".join(parts)},"tokens":{to_json(drafts)}{self._rows.extra}'


class SeededProgramOfChains(ProgramOfChains):
    """A program that draws its own random numbers; it gets many requests at once."""

    def outputs(self, instance: Instance, uniforms: npt.NDArray[np.float64]) -> Sequence[Path]:
        """Draw drafts for each run, and send many requests before reading the answers."""
        requests = (self._request(instance, Source(row)) for row in uniforms)
        return [_as_path(tokens) for tokens in self._session.ask(requests)]


class ProgramOfLoops(ProgramAdapter):
    """A program that decodes; it asks for rows of the models and for uniforms."""

    loops = True

    def __init__(
        self, *arguments: Any, max_tokens: int | None, end: int | None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.max_tokens = None if max_tokens is None else as_positive(max_tokens, "max_tokens")
        if end is not None:
            self.end, self.more = as_end(end)
        self._row_text = lru_cache(maxsize=4096)(self._write_row)

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Let the program decode a text."""
        request = (
            f'"prompt":{to_json(instance.prompt)},"gamma":{instance.gamma},'
            f'"max_tokens":{max_tokens(self, instance)},"vocabulary":{instance.vocabulary}'
            f"{self._rows.extra}"
        )
        if not self.repeatable:
            request += f',"seed":{int(source(1)[0] * LARGEST_SEED)}'

        def reply(message: dict[str, Any]) -> str:
            if "model" in message:
                return self._reply_with_rows(instance, message)
            if "uniforms" in message and self.repeatable:
                count = whole(message["uniforms"])
                if count is not None and 0 < count <= MOST_UNIFORMS:
                    return f'"uniforms":{to_json(source(count).tolist())}'
            raise self._session.error(
                f"asked {shown(message)}; a loop asks for "
                '{"model": "target", "tokens": [0, 2]} or, unless it gets a seed, {"uniforms": 3}, '
                'and ends with {"id": …, "tokens": […]}'
            )

        return _as_path(self._session.converse(request, reply))

    def _reply_with_rows(self, instance: Instance, message: dict[str, Any]) -> str:
        """Return the rows after the last `rows` prefixes of the tokens; by default the last row."""
        model, tokens, rows = message["model"], message.get("tokens"), message.get("rows")
        count = 1 if rows is None else whole(rows)
        if (
            not (isinstance(model, str) and model in SHIFTS)
            or not isinstance(tokens, list)
            or not all(type(x) is int and 0 <= x < instance.vocabulary for x in tokens)
            or count is None
            or not 0 < count <= len(tokens)
        ):
            raise self._session.error(
                f'asked {shown(message)}; the model is "target" or "draft", the tokens are from 0 '
                f'to {instance.vocabulary - 1}, and "rows", if given, is from 1 to their number'
            )
        texts = [
            self._row_text(instance, model, tuple(tokens[: len(tokens) - back]))
            for back in reversed(range(count))
        ]
        values = texts[0] if rows is None else f"[{','.join(texts)}]"
        return f'"{"probs" if self._rows.extra == "" else "logits"}":{values}'

    def _write_row(self, instance: Instance, model: str, context: Path) -> str:
        table = instance.target if model == "target" else instance.draft
        return to_json(self._rows.values(probs_of(table, context, False)[None], model)[0])


def _as_path(tokens: list[Any]) -> Path:
    """Remove the padding at the end; the audit checks the tokens."""
    while tokens and tokens[-1] == PADDING:
        tokens.pop()
    return tuple(tokens)
