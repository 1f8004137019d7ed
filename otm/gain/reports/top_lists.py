"""Positions with lists of the most likely tokens only: lines or responses in JSON.

What α_k is then known to is an interval (`otm.optimum.top_logprobs`), and no more than that is
computed: how much k-Seq or recursive rejection would accept depends on the unlisted tokens as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from otm._core.display.reprs import Brief
from otm._core.display.text import shown
from otm._core.files.lines import lines_of
from otm._core.files.paths import AnyPath, as_path, file_label, file_size, parse_json
from otm.errors import InvalidInputError, OTMError
from otm.gain.reports.pairs import Measured
from otm.gain.reports.responses import Position, positions_of
from otm.gain.reports.score_files import Bounds, Ints, digest, split
from otm.gain.reports.settings import Settings
from otm.optimum.top_logprobs import alpha_interval_from_logprobs, as_size, as_slack

LINE_BYTES = 2**15
"""More than most lines have: 512 of them are a block."""

NAMES = ("draft", "target")


@dataclass(frozen=True, eq=False)
class Lines:
    """Consecutive lines of the file, to be read by whoever measures."""

    path: Path
    begin: int
    end: int
    first: int
    vocabulary: int | None
    slack: float

    def measure(self, settings: Settings) -> Measured:
        """Compute lower and upper bounds of α_k at each position: "interval" [R, K, 2]."""
        places = []
        for number, (_, line) in enumerate(lines_of(self.path, self.begin, self.end), self.first):
            where = f"position {number} of {file_label(self.path)}"
            draft, target, _ = parsed(line, where)
            places.append((where, draft, target))
        return intervals(places, settings, self.vocabulary, self.slack)


@dataclass(frozen=True, eq=False)
class Positions:
    """Consecutive positions of responses, in memory."""

    positions: Sequence[Position]
    vocabulary: int | None
    slack: float

    def measure(self, settings: Settings) -> Measured:
        """Compute lower and upper bounds of α_k at each position: "interval" [R, K, 2]."""
        places = [(each.where, each.draft, each.target) for each in self.positions]
        return intervals(places, settings, self.vocabulary, self.slack)


def intervals(
    places: Iterable[tuple[str, dict[int, float], dict[int, float]]],
    settings: Settings,
    vocabulary: int | None,
    slack: float,
) -> Measured:
    """Compute bounds of α_k from the lists of draft and target at each named place."""
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
class TopLogprobs(Brief):
    """Lists of the most likely tokens in a file; made by `from_top_logprobs`.

    Attributes
    ----------
    path : Path
        The file.
    prompts : int array [N]
        The prompt of each position.
    prompts_known : bool
        Whether every line named one; otherwise all positions are taken to be of one kind.
    starts : int array [N + 1]
        Byte at which the line of each position begins, and the size of the file; empty for
        responses of two servers.
    vocabulary : int or None
        Number of tokens, if it is known.
    slack : float
        Most by which a log-probability may be off, in nats.

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
        """The file."""
        return file_label(self.path)

    @property
    def bounds(self) -> list[Bounds]:
        """Blocks of lines."""
        return split(self.prompts.size, LINE_BYTES)

    @property
    def key(self) -> dict[str, Any]:
        """Digests of the file and of the prompts, and what is assumed about it."""
        return {
            "lists": digest(self.path),
            "prompts": hashlib.sha256(self.prompts.tobytes()).hexdigest(),
            "vocabulary": self.vocabulary,
            "slack": self.slack,
        }

    def blocks(self, bounds: Iterable[Bounds]) -> Iterator[Lines]:
        """Hand out the places of lines.

        Parameters
        ----------
        bounds : iterable of (int, int)
            First position of each block, and the one behind its last; ascending.

        Yields
        ------
        Lines
            Where they stand in the file, unread.
        """
        for start, stop in bounds:
            begin, end = int(self.starts[start]), int(self.starts[stop])
            yield Lines(self.path, begin, end, start, self.vocabulary, self.slack)


@dataclass(frozen=True, eq=False)
class Responses(TopLogprobs):
    """Lists of the most likely tokens in the responses of two servers."""

    target_path: Path
    positions: Sequence[Position]
    left_out: int

    @property
    def name(self) -> str:
        """Both files, and the number of positions left out."""
        without = f", without {self.left_out:,} positions" if self.left_out else ""
        return f"{file_label(self.path)} and {file_label(self.target_path)}{without}"

    @property
    def key(self) -> dict[str, Any]:
        """Key of the draft's file, with a digest of the target's."""
        return {**super().key, "of the target": digest(self.target_path)}

    def blocks(self, bounds: Iterable[Bounds]) -> Iterator[Any]:
        """Yield blocks of positions, in ascending order."""
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

    The tokens of a line are whole numbers, or all of them texts, which must then be different
    wherever the tokens are.  Only the most likely ones may be listed: a token that a server adds
    because it was sampled must be left out.  Lines without a "prompt" are all of one.

    Parameters
    ----------
    path : str or Path
        The file of lines; with `target`, the draft model's responses.
    target : str or Path, optional
        The target model's responses to the same requests, in the same order: JSON of OpenAI's
        completions or chats: one response, a list of them, or in `.jsonl` files one per line.
    vocabulary : int, optional
        Size of the vocabulary, in tokens, if it is known.
    slack : float, optional
        In nats, as for `otm.optimum.top_logprobs.alpha_interval_from_logprobs`.

    Returns
    -------
    TopLogprobs
        A `Source` for `report`.

    Raises
    ------
    InvalidInputError
        If a file cannot be read, a line is no such object, or two servers read different texts.
    InvalidParameterError
        If the size of the vocabulary is not a whole number of at least 1, or the slack not a number
        from 0 to 1/2.

    Notes
    -----
    Both servers must have read the same tokens before each position: one text, given to both with
    `echo`, or a single token after each prompt.  Tokens are compared by their ids if all have one
    (vLLM's `return_tokens_as_token_ids`), else by their bytes, so both models must have the same
    tokenizer.  A position is left out if its list has a part of a character, or, in a chat, two
    tokens with the same text.  The list of a completion does not show such tokens, so ids are
    better.  The sampled token is dropped if it is the least likely of its list, since the server
    may have added it.  Each response is a prompt.

    Examples
    --------
    >>> import tempfile
    >>> line = '{"prompt": 3, "draft": {"1": -0.4, "2": -1.6}, "target": {"2": -0.7, "1": -0.9}}'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "lists.jsonl"
    ...     _ = path.write_text(f"{line}{chr(10)}{line}")
    ...     from_top_logprobs(path, vocabulary=8).prompts
    array([0, 0])

    Responses of two servers to one request, which lists two tokens:

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
        positions, left_out = positions_of(path, other)
        prompts_of = np.array([each.response for each in positions])
        known = (path.absolute(), prompts_of, True, np.zeros(0, dtype=np.int64), vocabulary, slack)
        return Responses(*known, other.absolute(), positions, left_out)
    size, numbers = file_size(path), dict[str | int, int]()
    starts: list[int] = []
    prompts: list[int] = []
    named = True
    for place, line in lines_of(path, 0, size):
        *_, prompt = parsed(line, f"position {len(starts)} of {file_label(path)}")
        named = named and prompt is not None
        starts.append(place)
        prompts.append(numbers.setdefault("" if prompt is None else prompt, len(numbers)))
    if not starts:
        raise InvalidInputError(f"{file_label(path)} has no lines; give one for each position")
    labels, ends = np.array(prompts), np.array([*starts, size])
    return TopLogprobs(path.absolute(), labels, named, ends, vocabulary, slack)


def parsed(line: bytes, where: str) -> tuple[dict[int, float], dict[int, float], str | int | None]:
    """Read a line: the log-probabilities of draft and target by token, and the prompt or None."""
    entry = parse_json(line, where)
    fits = isinstance(entry, dict) and set(NAMES) <= set(entry) <= {*NAMES, "prompt"}
    if isinstance(entry, dict) and "choices" in entry:
        raise InvalidInputError(
            f"{where} is a response of one server; give two files, the draft model's responses and "
            "the target model's"
        )
    if not fits or not all(isinstance(entry[name], dict) and entry[name] for name in NAMES):
        raise InvalidInputError(
            f'{where} is no object with "draft" and "target", each an object from tokens to '
            'log-probabilities, and perhaps "prompt"'
        )
    prompt = entry.get("prompt")
    if prompt is not None and (isinstance(prompt, bool) or not isinstance(prompt, str | int)):
        raise InvalidInputError(f"{where} has the prompt {shown(prompt)}; give a number or a text")
    texts = list(dict.fromkeys([*entry["draft"], *entry["target"]]))
    if all(text.isdecimal() and len(text) < 19 for text in texts):
        tokens = {text: int(text) for text in texts}
        if len(set(tokens.values())) < len(texts):
            raise InvalidInputError(f"{where} writes one token in two ways")
    else:
        tokens = {text: number for number, text in enumerate(texts)}
    draft, target = ({tokens[text]: p for text, p in entry[name].items()} for name in NAMES)
    return draft, target, prompt
