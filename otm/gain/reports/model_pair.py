"""Two Hugging Face models and the windows of tokens that they read."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import read_only
from otm._core.display.reprs import ShortRepr
from otm._core.display.text import shown
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidParameterError
from otm.gain.reports.pairs import Pairs
from otm.gain.reports.score_files import Bounds, Ints, split
from otm.models.base import Session
from otm.models.huggingface.model import HuggingFaceModel

DIGEST_NUMBERS = 2**22
"""Number of weights that are copied to the host at once for a digest."""


@dataclass(frozen=True, eq=False)
class ModelPair(ShortRepr):
    """Two models and a text, which they read in windows.

    Every token of a window is a position, except the first, or the tokens of the prompt. Both
    models' distributions at a position are conditioned on the tokens before it in the window.

    Parameters
    ----------
    draft, target : PreTrainedModel
        Causal models of transformers with the same tokens, in evaluation mode.
    windows : sequence of int array
        Token ids; each window has at least two tokens.
    prompt_of_window : int array [W]
        The prompt of each window.
    vocabulary : int
        Number of tokens. Some models pad their logits; logits beyond the number of tokens are cut
        off.
    sampled : bool, optional
        Whether the target sampled the tokens of `windows`, at the temperature of the report.
    prompts_known : bool, optional
        Whether `prompt_of_window` has real prompts.
    prompt_sizes : sequence of int, optional
        Number of first tokens of each window that are not positions; by default 1.
    answers : SamplingParameters, optional
        If the windows are prompts in the target's chat template with answers of the target: how
        the answers were sampled.
    """

    draft: Any
    target: Any
    windows: Sequence[Ints]
    prompt_of_window: Ints
    vocabulary: int
    sampled: bool = False
    prompts_known: bool = True
    prompt_sizes: Sequence[int] = ()
    answers: SamplingParameters | None = None

    @property
    def name(self) -> str:
        """Description with the names of both models, and how they read the text."""
        names = (shown(str(model.name_or_path)) for model in (self.draft, self.target))
        how = (
            "a text without a chat template"
            if self.answers is None
            else "answers of the target to prompts in its chat template"
        )
        return f"draft model {' and target model '.join(names)}, on {how}"

    @cached_property
    def first_positions(self) -> Ints:
        """Index in each window of the token that is its first position: array [W]."""
        return np.array(self.prompt_sizes or [1] * len(self.windows), dtype=np.int64)

    @cached_property
    def starts(self) -> Ints:
        """First position of each window, then the number of positions: array [W + 1]."""
        sizes = [window.size for window in self.windows] - self.first_positions
        return read_only(np.append(0, np.cumsum(sizes)))

    @cached_property
    def prompts(self) -> Ints:
        """The prompt of each position: array [N]."""
        return read_only(np.repeat(self.prompt_of_window, np.diff(self.starts)))

    @property
    def bounds(self) -> list[Bounds]:
        """Blocks of positions; each block is a part of one window."""
        return [block for w in range(len(self.windows)) for block in self._bounds_of(w)]

    @property
    def key(self) -> dict[str, Any]:
        """Digests of both models and of the text."""
        text = hashlib.sha256()
        for window in self.windows:
            text.update(window.tobytes() + b".")
        read = {"prompt sizes": list(self.prompt_sizes)} if self.prompt_sizes else {}
        return read | {
            "transformers": version("transformers"),
            "draft": digest_of_weights(self.draft),
            "target": digest_of_weights(self.target),
            "text": text.hexdigest(),
            "prompts": self.prompt_of_window.tolist(),
            "vocabulary": self.vocabulary,
            "sampled": self.sampled,
        }

    def context(self, position: int) -> tuple[int, ...]:
        """Return all tokens before a position in its window.

        Parameters
        ----------
        position : int
            Number of the position, from 0.

        Returns
        -------
        tuple of int
            The tokens, the oldest first.
        """
        window = self._window_of((position, position + 1))
        stop = int(self.first_positions[window] + position - self.starts[window])
        return tuple(self.windows[window][:stop].tolist())

    def blocks(self, bounds: Iterable[Bounds]) -> Iterator[Pairs]:
        """Run both models on each requested window, and yield its logits for the workers.

        Parameters
        ----------
        bounds : iterable of (int, int)
            First position of each block and the position after its last, ascending; a block lies in
            one window.

        Yields
        ------
        Pairs
            Logits of both models.

        Raises
        ------
        InvalidParameterError
            If a model does not accept the tokens of a window.
        """
        names = "the draft model's logits", "the target model's logits"
        for w, inside in itertools.groupby(bounds, self._window_of):
            requested, first = set(inside), int(self.starts[w])
            known = self.windows[w][self.first_positions[w] :] if self.sampled else None
            for start, stop, draft, target in self._read_window(w, max(requested)):
                if (start, stop) in requested:
                    tokens = None if known is None else known[start - first : stop - first]
                    yield Pairs(draft, target, tokens, start, stop, "logits", names, ("<f4", "<f4"))

    def _window_of(self, block: Bounds) -> int:
        return int(np.searchsorted(self.starts, block[0], side="right")) - 1

    def _bounds_of(self, window: int) -> list[Bounds]:
        """Return the blocks of a window."""
        first, stop = self.starts[window : window + 2].tolist()
        return [(first + a, first + b) for a, b in split(stop - first, 8 * self.vocabulary)]

    def _read_window(
        self, window: int, last: Bounds
    ) -> Iterator[tuple[int, int, npt.NDArray[Any], npt.NDArray[Any]]]:
        """Yield the blocks of a window up to the last requested one, with both models' logits.

        The models read block by block from the start of the window. So memory holds the logits of
        one block, and the logits do not depend on which blocks are requested.
        """
        tokens = self.windows[window][None]
        sessions = [self._session(model) for model in (self.draft, self.target)]
        unread = int(self.first_positions[window]) - 1
        for session in sessions:
            session.read(tokens[:, :unread])
        for start, stop in self._bounds_of(window):
            some = tokens[:, unread : unread + stop - start]
            draft, target = (session.append(some)[0].float().cpu().numpy() for session in sessions)
            unread += stop - start
            yield start, stop, draft, target
            if (start, stop) == last:
                return

    def _session(self, model: Any) -> Session:
        """Open a session with one row, without a cache if the model's cache is unknown."""
        try:
            return HuggingFaceModel(model, vocabulary=self.vocabulary).start(1)
        except InvalidParameterError:
            return HuggingFaceModel(model, vocabulary=self.vocabulary, cache=False).start(1)


def digest_of_weights(model: Any) -> str:
    """Return a digest of the names, shapes, types and bytes of all weights, on any device."""
    import torch

    whole = hashlib.sha256()
    for name, weight in model.state_dict().items():
        whole.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        for part in weight.detach().reshape(-1).split(DIGEST_NUMBERS):
            whole.update(part.contiguous().cpu().view(torch.uint8).numpy())
    return whole.hexdigest()
