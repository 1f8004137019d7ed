"""Positions from arrays in files, which are read in blocks of rows."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from otm._core.display.reprs import ShortRepr
from otm._core.files.headers import open_arrays
from otm._core.files.paths import AnyPath, as_path, file_label, file_size, opened, read_exactly
from otm._core.files.stored import StoredArray
from otm._core.numbers import as_vocabulary, check_name
from otm.errors import InvalidInputError
from otm.gain.reports.padding import Padding
from otm.gain.reports.pairs import KINDS, Measured, Pairs
from otm.gain.reports.settings import Settings

Ints = npt.NDArray[np.int64]

Bounds = tuple[int, int]
"""First position of a block, and the position after its last."""

BLOCK_BYTES = 2**24
"""Approximate number of bytes that a block reads from both files."""

MAX_POSITIONS = 4096
"""Largest number of positions in a block, so that results are saved often."""

MAX_ROWS = 2**24
"""Largest number of positions in total; some results for each position stay in memory."""

SAMPLES = 64
SAMPLE_BYTES = 2**16


class PositionBlock(Protocol):
    """Data of both models at consecutive positions."""

    def measure(self, settings: Settings) -> Measured:
        """Compute the arrays of a report at each position."""


class Source(Protocol):
    """Positions, with the data of both models at each position."""

    @property
    def prompts(self) -> Ints:
        """The prompt of each position, in the order of the text: array [N]."""

    @property
    def prompts_known(self) -> bool:
        """Whether `prompts` has real prompts; if not, a report has no intervals."""

    @property
    def name(self) -> str:
        """Description of the source for the report."""

    @property
    def bounds(self) -> list[Bounds]:
        """Bounds of the blocks, which cover all positions."""

    @property
    def key(self) -> dict[str, Any]:
        """All data on which the results depend, as JSON."""

    def blocks(self, bounds: Iterable[Bounds]) -> Iterator[PositionBlock]:
        """Yield blocks in ascending order; blocks that workers can read themselves stay unread.

        Parameters
        ----------
        bounds : iterable of (int, int)
            First position of each block, and the position after its last; ascending.

        Yields
        ------
        PositionBlock
            Data of both models at these positions.
        """


@dataclass(frozen=True, eq=False)
class ScoreFiles(ShortRepr):
    """Scores of both models in files; made by `from_files`.

    Attributes
    ----------
    draft, target : StoredArray
        Scores [N, V] of the two models.
    kind : str
        Kind of the scores: "logits", "log-probabilities" or "probabilities".
    prompts : int array [N]
        The prompt of each position.
    tokens : int array [N] or None
        The token that the target sampled at each position; None if unknown.
    prompts_known : bool
        Whether `prompts` has real prompts; if not, a report has no intervals.
    vocabulary : int or None
        Number of tokens, if known: longer rows are cut to it, and shorter rows are filled up.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "pair.npz"
    ...     np.savez(path, draft=np.zeros((3, 2)), target=np.ones((3, 2)), prompts=[0, 0, 1])
    ...     files = from_files(path)
    ...     print(files.prompts, files.bounds, files.tokens)
    [0 0 1] [(0, 3)] None
    """

    draft: StoredArray
    target: StoredArray
    kind: str
    prompts: Ints
    tokens: Ints | None
    prompts_known: bool
    vocabulary: int | None = None

    @property
    def name(self) -> str:
        """Description with the names of both arrays and files."""
        of = "" if self.vocabulary is None else f", {self.vocabulary:,} tokens of each"
        return f"{self.draft.description} and {self.target.description}{of}"

    @property
    def bounds(self) -> list[Bounds]:
        """Bounds of blocks of rows; a block has about `BLOCK_BYTES` bytes."""
        return split(self.prompts.size, self.draft.row_bytes + self.target.row_bytes)

    @property
    def key(self) -> dict[str, Any]:
        """Digests of both arrays, prompts and tokens, with the kind of the scores."""
        return {
            "kind": self.kind,
            "vocabulary": self.vocabulary,
            "draft": [self.draft.name, self.draft.dtype, digest(self.draft.path)],
            "target": [self.target.name, self.target.dtype, digest(self.target.path)],
            "prompts": hashlib.sha256(self.prompts.tobytes()).hexdigest(),
            "tokens": self.tokens is not None and hashlib.sha256(self.tokens.tobytes()).hexdigest(),
        }

    def blocks(self, bounds: Iterable[Bounds]) -> Iterator[Pairs]:
        """Yield rows of both files; compressed rows are unpacked here, a block at a time.

        Parameters
        ----------
        bounds : iterable of (int, int)
            First position of each block, and the position after its last; ascending.

        Yields
        ------
        Pairs
            The rows of both models.

        Raises
        ------
        InvalidInputError
            If a compressed array is too short or damaged. Workers check uncompressed arrays.
        """
        places = list(bounds)
        streams = (
            itertools.repeat(rows) if rows.member is None else rows.blocks(places)
            for rows in (self.draft, self.target)
        )
        names = self.draft.description, self.target.description
        dtypes = self.draft.dtype, self.target.dtype
        of_draft, of_target = (
            Padding(self.vocabulary, begins_with_zeros=not rows.read(0, 1).any())
            for rows in (self.draft, self.target)
        )
        for (start, stop), draft, target in zip(places, *streams, strict=False):
            tokens = None if self.tokens is None else self.tokens[start:stop]
            yield Pairs(
                draft, target, tokens, start, stop, self.kind, names, dtypes, (of_draft, of_target)
            )


def from_files(
    draft: AnyPath,
    target: AnyPath | None = None,
    *,
    kind: str = "logits",
    draft_name: str = "draft",
    target_name: str = "target",
    prompts: AnyPath | None = None,
    tokens: AnyPath | None = None,
    vocabulary: int | None = None,
) -> ScoreFiles:
    """Take scores of both models from `.npy`, `.npz` or `.safetensors` files.

    The rows of a prompt must be consecutive positions of its text, in order; if they are not, the
    tokens per step are meaningless.

    Parameters
    ----------
    draft : str or Path
        File with the draft model's scores [N, V], or with the scores of both models.
    target : str or Path, optional
        File with the target model's scores.
    kind : {"logits", "log-probabilities", "probabilities"}, optional
        Kind of the scores; logarithms are natural.
    draft_name, target_name : str, optional
        Names of the arrays, in files with several arrays.
    prompts : str or Path, optional
        File with the prompt of each position, integers [N]. The default is an array "prompts" in
        one of the files. Without prompts the similarity of positions is unknown, so the report has
        no intervals.
    tokens : str or Path, optional
        File with the token that the target sampled at each position, integers [N], at the
        temperature of the report. The default is an array "tokens" in one of the files, if there is
        one.
    vocabulary : int, optional
        Number of tokens, for files with padded columns. Columns beyond this number are cut off. In
        each row, these columns must be NaN, be all zero, or have at most 1e-4 of the mass. Narrower
        rows are filled up with tokens of probability zero.

    Returns
    -------
    ScoreFiles
        A `Source` for `report`.

    Raises
    ------
    InvalidInputError
        If an array is missing or invalid, or one array would serve both models. Only headers,
        prompts and tokens are read before this check.
    InvalidParameterError
        If `vocabulary` is not from 1 to 2^24.
    UnknownMethodError
        If `kind` is unknown.

    Notes
    -----
    A report raises an error on visible padding: columns that are NaN in every row. For logits and
    log-probabilities, rows of zeros and final columns of zeros are padding too.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "pair.npz"
    ...     np.savez(path, draft=np.zeros((6, 2)), target=np.ones((6, 2)))
    ...     from_files(path, kind="logits").prompts_known
    False
    """
    check_name("kind of scores", kind, KINDS)
    size = None if vocabulary is None else as_vocabulary(vocabulary)
    paths = as_path(draft), as_path(draft if target is None else target)
    files = {path: open_arrays(path) for path in dict.fromkeys(paths)}
    of_draft, of_target = (
        _scores(files[path], name, path)
        for path, name in zip(paths, (draft_name, target_name), strict=True)
    )
    if of_draft.name == of_target.name and of_draft.path.samefile(of_target.path):
        fault = "holds one array" if target is None else "is given for the draft and for the target"
        raise InvalidInputError(
            f"{of_draft.description} {fault}; give a file for each model, or one file with both "
            "arrays"
        )
    _check_pair(of_draft, of_target, kind, size)
    positions = of_draft.shape[0]
    # a small compressed archive can declare any number of zeros
    if positions > MAX_ROWS:
        raise InvalidInputError(
            f"{of_draft.description} has {positions:,} positions; at most {MAX_ROWS:,} are read"
        )
    labels = _labels(files, "prompts", prompts, positions)
    sampled = _labels(files, "tokens", tokens, positions)
    clusters = np.zeros(positions, dtype=np.int64) if labels is None else labels
    return ScoreFiles(of_draft, of_target, kind, clusters, sampled, labels is not None, size)


def split(positions: int, row_bytes: int) -> list[Bounds]:
    """Cut positions into blocks of about `BLOCK_BYTES`, each of at least one position."""
    step = max(1, min(BLOCK_BYTES // max(row_bytes, 1), MAX_POSITIONS))
    return [(start, min(start + step, positions)) for start in range(0, positions, step)]


def digest(path: Path) -> str:
    """Return a digest of a file's size, modification time and samples of its bytes.

    The samples are evenly spread, and include the first and the last bytes.
    """
    size = file_size(path)
    whole = hashlib.sha256(f"{size} {path.stat().st_mtime_ns}".encode())
    last = max(size - SAMPLE_BYTES, 0)
    with opened(path) as file:
        for place in sorted({last * i // (SAMPLES - 1) for i in range(SAMPLES)}):
            whole.update(read_exactly(file, place, min(SAMPLE_BYTES, size - place), path))
    return whole.hexdigest()


def _scores(arrays: dict[str, StoredArray], name: str, path: Path) -> StoredArray:
    """Return the array with a name, or the only array of the file."""
    if name in arrays:
        return arrays[name]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    there = ", ".join(f"{rows.name!r:.40} {rows.shape}" for rows in list(arrays.values())[:10])
    raise InvalidInputError(f"{file_label(path)} has no array {name!r:.60}; it has {there}")


def _check_pair(
    of_draft: StoredArray, of_target: StoredArray, kind: str, vocabulary: int | None
) -> None:
    """Raise unless both arrays have scores of the same tokens at the same positions."""
    for rows in (of_draft, of_target):
        if rows.kind != "f":
            raise InvalidInputError(f"{rows.description} has integers; scores must be floats")
        if 0 in rows.shape:
            missing = "rows" if rows.shape[0] == 0 else "tokens"
            raise InvalidInputError(
                f"{rows.description} has the shape {rows.shape}, so it has no {missing}; {kind} "
                "must be [N, V], one row per position"
            )
    shapes = of_draft.shape, of_target.shape
    if not len(shapes[0]) == len(shapes[1]) == 2 or shapes[0][0] != shapes[1][0]:
        raise InvalidInputError(
            f"{of_draft.description} has the shape {of_draft.shape} and {of_target.description} "
            f"{of_target.shape}; {kind} must be [N, V], one row per position, with the same N"
        )
    if shapes[0] != shapes[1] and vocabulary is None:
        raise InvalidInputError(
            f"{of_draft.description} has {of_draft.shape[1]:,} tokens and {of_target.description} "
            f"{of_target.shape[1]:,}; if models or files are padded, give the tokenizer's number "
            "of tokens with --vocabulary N (vocabulary=N): columns beyond it are cut off, and "
            "narrower rows are filled up with tokens of probability zero"
        )


def _labels(
    files: dict[Path, dict[str, StoredArray]], name: str, path: AnyPath | None, positions: int
) -> Ints | None:
    """Return one integer per position: from a separate file, or from a file with scores."""
    places = list(files.values()) if path is None else [open_arrays(path)]
    named = [arrays[name] for arrays in places if name in arrays]
    if path is None and not named:
        return None
    labels = named[0] if named else next(iter(places[0].values()))
    if labels.shape != (positions,) or labels.kind not in "iu":
        raise InvalidInputError(
            f"{labels.description} has the shape {labels.shape} and type {labels.dtype}; {name} "
            f"must be integers of shape ({positions},), one per position"
        )
    return labels.read(0, positions).astype(np.int64)
