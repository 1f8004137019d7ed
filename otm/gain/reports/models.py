"""Positions of a text that two Hugging Face models read."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import read_only
from otm._core.display.reprs import ShortRepr
from otm._core.display.text import shown
from otm._core.files.paths import AnyPath, as_path, file_label, read_whole
from otm._core.numbers import as_positive
from otm._core.optional import require
from otm.errors import InvalidInputError
from otm.gain.reports.pairs import Pairs
from otm.gain.reports.score_files import Bounds, Ints, split
from otm.models.huggingface.loading import load_pair
from otm.models.huggingface.model import HuggingFaceModel

LONGEST_TEXT = 2**28

DIGEST_NUMBERS = 2**22
"""Number of weights that are copied to the host at once for a digest."""


@dataclass(frozen=True, eq=False)
class ModelPair(ShortRepr):
    """Two models and a text, which they read in windows.

    Every token of a window except the first is a position. Both models' distributions at a position
    are conditioned on the tokens before it in the window.

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
    """

    draft: Any
    target: Any
    windows: Sequence[Ints]
    prompt_of_window: Ints
    vocabulary: int
    sampled: bool = False
    prompts_known: bool = True

    @property
    def name(self) -> str:
        """Description with the names of both models."""
        names = (shown(str(model.name_or_path)) for model in (self.draft, self.target))
        return f"draft model {' and target model '.join(names)}"

    @cached_property
    def starts(self) -> Ints:
        """First position of each window, then the number of positions: array [W + 1]."""
        sizes = [window.size - 1 for window in self.windows]
        return read_only(np.append(0, np.cumsum(sizes)))

    @cached_property
    def prompts(self) -> Ints:
        """The prompt of each position: array [N]."""
        return read_only(np.repeat(self.prompt_of_window, np.diff(self.starts)))

    @property
    def bounds(self) -> list[Bounds]:
        """Blocks of positions; each block is a part of one window."""
        return [
            (int(start) + begin, int(start) + end)
            for start, window in zip(self.starts, self.windows, strict=False)
            for begin, end in split(window.size - 1, 8 * self.vocabulary)
        ]

    @property
    def key(self) -> dict[str, Any]:
        """Digests of both models and of the text."""
        text = hashlib.sha256()
        for window in self.windows:
            text.update(window.tobytes() + b".")
        return {
            "transformers": version("transformers"),
            "draft": digest_of_weights(self.draft),
            "target": digest_of_weights(self.target),
            "text": text.hexdigest(),
            "prompts": self.prompt_of_window.tolist(),
            "vocabulary": self.vocabulary,
            "sampled": self.sampled,
        }

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
        """
        names = "the draft model's logits", "the target model's logits"
        for w, inside in itertools.groupby(bounds, self._window_of):
            draft, target = self._logits(self.draft, w), self._logits(self.target, w)
            for start, stop in inside:
                rows = slice(start - int(self.starts[w]), stop - int(self.starts[w]))
                tokens = self.windows[w][1:][rows] if self.sampled else None
                scores = draft[rows], target[rows]
                yield Pairs(*scores, tokens, start, stop, "logits", names, ("<f4", "<f4"))

    def _window_of(self, block: Bounds) -> int:
        return int(np.searchsorted(self.starts, block[0], side="right")) - 1

    def _logits(self, model: Any, window: int) -> npt.NDArray[Any]:
        session = HuggingFaceModel(model, vocabulary=self.vocabulary, cache=False).start(1)
        scores = session.append(self.windows[window][None, :-1])
        logits: npt.NDArray[Any] = scores[0].float().cpu().numpy()
        return logits


def from_models(
    draft: AnyPath,
    target: AnyPath,
    text: AnyPath,
    *,
    prompts: AnyPath | None = None,
    window: int = 128,
    sampled: bool = False,
    device: str | None = None,
) -> ModelPair:
    """Take the positions of a text that two Hugging Face models read.

    Parameters
    ----------
    draft, target : str or Path
        A folder or a name on the hub, as `from_pretrained` takes it.
    text : str or Path
        Text in UTF-8. The paragraphs of the text, separated by empty lines, are the prompts. A
        paragraph longer than a window continues in the next window, which does not see the tokens
        before it.
    prompts : str or Path, optional
        File with as many lines as `text`; each line names the prompt that this line of `text`
        belongs to. Consecutive lines with the same name are read as one text. If each line is a
        separate prompt, give the file of `text` here too.
    window : int, optional
        Largest number of tokens that the models read at once, at least 1.
    sampled : bool, optional
        Whether the target sampled this text, at the temperature of the report.
    device : str, optional
        Device of the models, such as "cuda"; by default the CPU.

    Returns
    -------
    ModelPair
        A `Source` for `report`.

    Raises
    ------
    InvalidInputError
        If a text or a model cannot be read, `text` and `prompts` have different numbers of lines,
        or the models' tokens differ.
    InvalidParameterError
        If `window` is not an integer of at least 1.
    MissingDependencyError
        If transformers is not installed.
    """
    require("transformers")
    length = as_positive(window, "window")
    lines = _lines(as_path(text))
    if prompts is None:
        passages = list(enumerate(_paragraphs(lines)))
    else:
        passages = _join_lines_by_name(lines, _lines(as_path(prompts)), file_label(prompts))
    pair = load_pair(draft, target, device)
    windows, prompt_of_window = [], []
    for number, passage in passages:
        tokens = np.array(pair.tokenizer(passage, verbose=False).input_ids, dtype=np.int64)
        for start in range(0, tokens.size, length):
            if tokens[start : start + length].size > 1:
                windows.append(tokens[start : start + length])
                prompt_of_window.append(number)
    if not windows:
        raise InvalidInputError(
            f"{file_label(text)} has no two consecutive tokens in a window; give a longer text"
        )
    configs = [model.config.get_text_config(decoder=True) for model in (pair.draft, pair.target)]
    reach = min(getattr(config, "max_position_embeddings", None) or length for config in configs)
    # the models need not read the last token of a window
    longest = max(tokens.size for tokens in windows) - 1
    if longest > reach:
        raise InvalidInputError(
            f"window = {length}; a model reads at most {reach} tokens: give a window of "
            f"{reach + 1} or less"
        )
    of_windows = np.array(prompt_of_window)
    return ModelPair(pair.draft, pair.target, windows, of_windows, pair.vocabulary, sampled)


def digest_of_weights(model: Any) -> str:
    """Return a digest of the names, shapes, types and bytes of all weights, on any device."""
    import torch

    whole = hashlib.sha256()
    for name, weight in model.state_dict().items():
        whole.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        for part in weight.detach().reshape(-1).split(DIGEST_NUMBERS):
            whole.update(part.contiguous().cpu().view(torch.uint8).numpy())
    return whole.hexdigest()


def _lines(path: Path) -> list[str]:
    data = read_whole(path, LONGEST_TEXT, "texts")
    try:
        return [line.strip() for line in data.decode("utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file_label(path)} is not UTF-8: {error!s:.100}") from None


def _paragraphs(lines: list[str]) -> list[str]:
    return [part for block in "\n".join(lines).split("\n\n") if (part := block.strip())]


def _join_lines_by_name(lines: list[str], names: list[str], label: str) -> list[tuple[int, str]]:
    """Join consecutive lines with the same name; return pairs of name number and nonempty text."""
    if len(names) != len(lines):
        raise InvalidInputError(
            f"{label} has {len(names):,} lines and the text {len(lines):,}; give one prompt name "
            "for each line of the text"
        )
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    passages = []
    for name, group in itertools.groupby(zip(names, lines, strict=True), lambda pair: pair[0]):
        if passage := "\n".join(line for _, line in group).strip():
            passages.append((numbers[name], passage))
    return passages
