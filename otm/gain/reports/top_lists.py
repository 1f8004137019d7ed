"""Positions with lists of only the most probable tokens: JSON lines or server responses.

Lists of the most probable tokens determine only an interval for α_k (`otm.optimum.top_logprobs`).
The acceptance of k-Seq or recursive rejection also depends on the unlisted tokens, so it is not
computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from otm._core.display.reprs import ShortRepr
from otm._core.display.text import shown
from otm._core.files.lines import lines_of
from otm._core.files.paths import AnyPath, as_path, file_label, file_size, parse_json
from otm.errors import InvalidInputError, OTMError
from otm.gain.reports.pairs import Measured
from otm.gain.reports.responses import Position, match_positions
from otm.gain.reports.score_files import Bounds, Ints, digest, split
from otm.gain.reports.settings import Settings
from otm.optimum.top_logprobs import alpha_interval_from_logprobs, as_size, as_slack

LINE_BYTES = 2**15
"""Assumed length of a line in bytes; lines are usually shorter. A block then has 512 lines."""

NAMES = ("draft", "target")


@dataclass(frozen=True, eq=False)
class Lines:
    """Consecutive lines of a file, which the worker reads."""

    path: Path
    begin: int
    end: int
    first: int
    vocabulary: int | None
    slack: float

    def measure(self, settings: Settings) -> Measured:
        """Return lower and upper bounds on α_k at each position: "interval" [R, K, 2]."""
        places = []
        for number, (_, line) in enumerate(lines_of(self.path, self.begin, self.end), self.first):
            where = f"position {number} of {file_label(self.path)}"
            draft, target, _ = parse_line(line, where)
            places.append((where, draft, target))
        return intervals(places, settings, self.vocabulary, self.slack)


@dataclass(frozen=True, eq=False)
class Positions:
    """Consecutive positions of server responses, in memory."""

    positions: Sequence[Position]
    vocabulary: int | None
    slack: float

    def measure(self, settings: Settings) -> Measured:
        """Return lower and upper bounds on α_k at each position: "interval" [R, K, 2]."""
        places = [(each.where, each.draft, each.target) for each in self.positions]
        return intervals(places, settings, self.vocabulary, self.slack)


def intervals(
    places: Iterable[tuple[str, dict[int, float], dict[int, float]]],
    settings: Settings,
    vocabulary: int | None,
    slack: float,
) -> Measured:
    """Return bounds on α_k at positions, each with a name and the lists of draft and target."""
    rows = []
    for where, draft, target in places:
        try:
            found = [
                alpha_interval_from_logprobs(draft, target, k, vocabulary=vocabulary, slack=slack)
                for k in settings.ks
            ]
        except OTMError as error:
            raise InvalidInputError(f"{where}: {error}") from None
        rows.append([(float(each.lower), float(each.upper)) for each in found])
    return {"interval": np.array(rows)}


@dataclass(frozen=True, eq=False)
class TopLogprobs(ShortRepr):
    """Lists of the most probable tokens in a file; made by `from_top_logprobs`.

    Attributes
    ----------
    path : Path
        The file.
    prompts : int array [N]
        The prompt of each position.
    prompts_known : bool
        Whether every line names a prompt; if not, a report has no intervals.
    starts : int array [N + 1]
        Byte offset of the line of each position, then the size of the file. Empty for responses of
        two servers.
    vocabulary : int or None
        Number of tokens, if known.
    slack : float
        Largest error of a log-probability, in nats.

    Examples
    --------
    >>> import tempfile
    >>> line = '{"prompt": 3, "draft": {"1": -0.4, "2": -1.6}, "target": {"2": -0.7, "1": -0.9}}'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "lists.jsonl"
    ...     _ = path.write_text(f"{line}{chr(10)}{line}")
    ...     lists = from_top_logprobs(path)
    ...     print(lists.prompts, lists.bounds)
    [0 0] [(0, 2)]
    """

    path: Path
    prompts: Ints
    prompts_known: bool
    starts: Ints
    vocabulary: int | None
    slack: float

    @property
    def name(self) -> str:
        """Description with the name of the file."""
        return file_label(self.path)

    @property
    def bounds(self) -> list[Bounds]:
        """Bounds of the blocks of lines."""
        return split(self.prompts.size, LINE_BYTES)

    @property
    def key(self) -> dict[str, Any]:
        """Digests of the file and of the prompts, with the vocabulary and the slack."""
        return {
            "lists": digest(self.path),
            "prompts": hashlib.sha256(self.prompts.tobytes()).hexdigest(),
            "vocabulary": self.vocabulary,
            "slack": self.slack,
        }

    def blocks(self, bounds: Iterable[Bounds]) -> Iterator[Lines]:
        """Yield blocks of lines without reading them.

        Parameters
        ----------
        bounds : iterable of (int, int)
            First position of each block, and the position after its last; ascending.

        Yields
        ------
        Lines
            The byte range of the block's lines.
        """
        for start, stop in bounds:
            begin, end = int(self.starts[start]), int(self.starts[stop])
            yield Lines(self.path, begin, end, start, self.vocabulary, self.slack)


@dataclass(frozen=True, eq=False)
class Responses(TopLogprobs):
    """Lists of the most probable tokens in the responses of two servers."""

    target_path: Path
    positions: Sequence[Position]
    left_out: int

    @property
    def name(self) -> str:
        """Description with the names of both files and the number of skipped positions."""
        without = f", without {self.left_out:,} positions" if self.left_out else ""
        return f"{file_label(self.path)} and {file_label(self.target_path)}{without}"

    @property
    def key(self) -> dict[str, Any]:
        """Digests and settings as for `TopLogprobs`, with a digest of the target's file."""
        return {**super().key, "of the target": digest(self.target_path)}

    def blocks(self, bounds: Iterable[Bounds]) -> Iterator[Any]:
        """Yield blocks of positions in ascending order."""
        for start, stop in bounds:
            yield Positions(self.positions[start:stop], self.vocabulary, self.slack)


def from_top_logprobs(
    path: AnyPath,
    target: AnyPath | None = None,
    *,
    vocabulary: int | None = None,
    slack: float = 1e-5,
) -> TopLogprobs:
    """Read lists of log-probabilities: one position per line, or responses of two servers.

    A line is a JSON object such as ::

        {"prompt": 3, "draft": {"11": -0.4, "42": -1.6}, "target": {"42": -0.7, "11": -0.9}}

    The tokens of a line are integers, or all of them are texts. Different tokens must have
    different texts. List only the most probable tokens: leave out a token that a server added
    because it was sampled. Lines without a "prompt" belong to one common prompt.

    Parameters
    ----------
    path : str or Path
        File of lines; if `target` is given, the draft model's responses.
    target : str or Path, optional
        The target model's responses to the same requests, in the same order: JSON of OpenAI's
        completions or chats. A file has one response, a list of responses, or one response per line
        (`.jsonl`).
    vocabulary : int, optional
        Number of tokens, if known.
    slack : float, optional
        Largest error of a log-probability in nats, as for
        `otm.optimum.top_logprobs.alpha_interval_from_logprobs`.

    Returns
    -------
    TopLogprobs
        A `Source` for `report`.

    Raises
    ------
    InvalidInputError
        If a file cannot be read, a line has another form, or two servers read different texts.
    InvalidParameterError
        If `vocabulary` is not an integer of at least 1, or `slack` is not a number from 0 to 1/2.

    Notes
    -----
    Both servers must have read the same tokens before each position: one text, sent to both with
    `echo`, or a single token after each prompt. Tokens are compared by their ids if all tokens have
    ids (vLLM's `return_tokens_as_token_ids`), otherwise by their bytes. So both models must have
    the same tokenizer. A position is skipped if its list has an incomplete character. In a chat, a
    position is also skipped if two tokens have the same text; a completion hides such pairs of
    tokens, so prefer ids. If the sampled token is the least probable of its list, it is dropped,
    because the server may have added it. The positions of each response form one prompt.

    Examples
    --------
    >>> import tempfile
    >>> line = '{"prompt": 3, "draft": {"1": -0.4, "2": -1.6}, "target": {"2": -0.7, "1": -0.9}}'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "lists.jsonl"
    ...     _ = path.write_text(f"{line}{chr(10)}{line}")
    ...     from_top_logprobs(path, vocabulary=8).prompts
    array([0, 0])

    Two servers answer one request, and each response lists two tokens:

    >>> import json
    >>> lists = {"draft": {"a": -0.4, "the": -1.6}, "target": {"the": -0.7, "a": -0.9}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = {name: Path(folder) / f"{name}.json" for name in lists}
    ...     for name, path in paths.items():
    ...         logprobs = {"tokens": ["the"], "top_logprobs": [lists[name]]}
    ...         _ = path.write_text(json.dumps({"choices": [{"logprobs": logprobs}]}))
    ...     from_top_logprobs(paths["draft"], paths["target"]).name
    "file 'draft.json' and file 'target.json'"
    """
    vocabulary, slack = as_size(vocabulary), float(as_slack(slack))
    path = as_path(path)
    if target is not None:
        other = as_path(target)
        positions, left_out = match_positions(path, other)
        prompts_of = np.array([each.response for each in positions])
        known = (path.absolute(), prompts_of, True, np.zeros(0, dtype=np.int64), vocabulary, slack)
        return Responses(*known, other.absolute(), positions, left_out)
    size, numbers = file_size(path), dict[str | int, int]()
    starts: list[int] = []
    prompts: list[int] = []
    named = True
    for place, line in lines_of(path, 0, size):
        *_, prompt = parse_line(line, f"position {len(starts)} of {file_label(path)}")
        named = named and prompt is not None
        starts.append(place)
        prompts.append(numbers.setdefault("" if prompt is None else prompt, len(numbers)))
    if not starts:
        raise InvalidInputError(f"{file_label(path)} has no lines; give one line per position")
    labels, ends = np.array(prompts), np.array([*starts, size])
    return TopLogprobs(path.absolute(), labels, named, ends, vocabulary, slack)


def parse_line(
    line: bytes, where: str
) -> tuple[dict[int, float], dict[int, float], str | int | None]:
    """Parse a line: log-probabilities of draft and target by token, and the prompt or None."""
    entry = parse_json(line, where)
    fits = isinstance(entry, dict) and set(NAMES) <= set(entry) <= {*NAMES, "prompt"}
    if isinstance(entry, dict) and "choices" in entry:
        raise InvalidInputError(
            f"{where} is a response of one server; give two files with the responses of the draft "
            "model and of the target model"
        )
    if not fits or not all(isinstance(entry[name], dict) and entry[name] for name in NAMES):
        raise InvalidInputError(
            f'{where} is not an object with "draft" and "target", each an object from tokens to '
            'log-probabilities, and optionally "prompt"'
        )
    prompt = entry.get("prompt")
    if prompt is not None and (isinstance(prompt, bool) or not isinstance(prompt, str | int)):
        raise InvalidInputError(
            f"{where} has the prompt {shown(prompt)}; give a number or a string"
        )
    texts = list(dict.fromkeys([*entry["draft"], *entry["target"]]))
    if all(text.isdecimal() and len(text) < 19 for text in texts):
        tokens = {text: int(text) for text in texts}
        if len(set(tokens.values())) < len(texts):
            raise InvalidInputError(f"{where} writes one token in two ways; write each token once")
    else:
        tokens = {text: number for number, text in enumerate(texts)}
    draft, target = ({tokens[text]: p for text, p in entry[name].items()} for name in NAMES)
    return draft, target, prompt
