"""Read recorded decoding steps from a file or from Python, and check them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.checks import as_array
from otm._core.display.text import shown
from otm._core.files.headers import open_arrays
from otm._core.files.paths import as_path, file_label, opened, parse_json
from otm._core.files.stored import StoredArray
from otm._core.numbers import whole
from otm._core.probs.sparse import SparseProbs
from otm.audit.streams.e_process import Floats
from otm.errors import InvalidInputError

PRECISE = 1e-5
"""Relative rounding of probabilities in float32 and float64, including their softmax."""

HALF = 1e-2
"""Relative rounding of probabilities in float16 and bfloat16."""

LONGEST_LINE = 2**27
"""Largest number of bytes of a line; nine rows of 150,000 tokens need half of it."""

NAMES = ("target_probs", "output", "drafts", "draft_probs")

ARRAYS = {"target_probs": 3, "output": 2, "drafts": 2, "draft_probs": 3}
"""Number of axes of each array in a file: steps, positions, tokens."""


@dataclass(frozen=True, eq=False)
class Step:
    """One step, with tokens as indices of the ids that occur in it."""

    # Tokens of the step in ascending order [U].
    ids: npt.NDArray[np.int64]
    # Target rows [m, U], row i after i tokens; m is at least the length of the output.
    target: Floats
    # Draft rows [g, U].
    draft: Floats | None
    # Indices of the g drafts.
    drafts: tuple[int, ...]
    # Indices of the 1 to g + 1 output tokens.
    output: tuple[int, ...]


def read_steps(steps: Any, rounding: float | None) -> tuple[Iterator[Step], float]:
    """Return the steps of a file or an iterable, as an iterator, and the rounding of their rows.

    Every error message names the step.
    """
    if not isinstance(steps, str | Path):
        if not isinstance(steps, Iterable) or isinstance(steps, Mapping):
            raise InvalidInputError(
                f"steps = {shown(steps)}; give the path of a file, or the steps, each a dict with "
                f"{', '.join(NAMES)}"
            )
        slack = PRECISE if rounding is None else rounding
        numbered = ((f"step {number}", step) for number, step in enumerate(steps))
        return (as_step(entry, where, slack) for where, entry in numbered), slack
    path = as_path(steps)
    if path.suffix.lower() in (".npz", ".safetensors"):
        arrays = _checked_arrays(path)
        half = any(arrays[name].dtype in ("<f2", ">f2", "bfloat16") for name in arrays)
        slack = rounding if rounding is not None else HALF if half else PRECISE
        return _from_arrays(arrays, path, slack), slack
    slack = PRECISE if rounding is None else rounding
    entries = ((where, parse_json(line, where)) for where, line in _lines(path))
    return (as_step(entry, where, slack) for where, entry in entries), slack


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    number = 0
    with opened(path) as file:
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise InvalidInputError(
                    f"line {number} of {file_label(path)} has more than {LONGEST_LINE:,} bytes; "
                    "write one step per line, or arrays into a .npz file"
                )
            if line.strip():
                yield f"line {number} of {file_label(path)}", line


def _checked_arrays(path: Path) -> dict[str, StoredArray]:
    found = open_arrays(path)
    if not {"target_probs", "output"} <= set(found) <= set(ARRAYS):
        raise InvalidInputError(
            f"{file_label(path)} has the arrays {', '.join(found)}; it needs target_probs and "
            "output, and may have drafts and draft_probs"
        )
    for name, array in found.items():
        whole_numbers = ARRAYS[name] == 2
        kinds = "iu" if whole_numbers else "f"
        if len(array.shape) != ARRAYS[name] or array.kind not in kinds:
            shape = "[steps, tokens] of integers" if whole_numbers else "[steps, rows, V] of floats"
            raise InvalidInputError(
                f"{array.description} of shape {array.shape} and type {array.dtype}; it must be "
                f"{shape}"
            )
    if len({array.shape[0] for array in found.values()}) > 1:
        raise InvalidInputError(f"the arrays of {file_label(path)} have different numbers of steps")
    return found


def _from_arrays(arrays: dict[str, StoredArray], path: Path, slack: float) -> Iterator[Step]:
    """Read one step after another, without the padding −1 of tokens and the rows of padding."""
    count = arrays["output"].shape[0]
    each = [(number, number + 1) for number in range(count)]
    streams = {name: array.blocks(each) for name, array in arrays.items()}
    for number in range(count):
        entry: dict[str, Any] = {name: next(blocks)[0] for name, blocks in streams.items()}
        for name in ("output", "drafts"):
            if name in entry:
                entry[name] = entry[name][: int(np.append(entry[name] == -1, True).argmax())]
        if "drafts" in entry:
            length = len(entry["drafts"])
            entry["target_probs"] = entry["target_probs"][: length + 1]
            if "draft_probs" in entry:
                entry["draft_probs"] = entry["draft_probs"][:length]
        else:
            entry["target_probs"] = entry["target_probs"][: len(entry["output"])]
        yield as_step(entry, f"step {number} of {file_label(path)}", slack)


def as_step(entry: Any, where: str, slack: float) -> Step:
    """Check one step, and reduce its rows to the tokens that occur in it."""
    if not isinstance(entry, Mapping) or not {"target_probs", "output"} <= set(entry) <= set(NAMES):
        names = f" with {shown(list(entry))}" if isinstance(entry, Mapping) else ""
        raise InvalidInputError(
            f'{where} has the wrong form{names}; it must be an object with "target_probs" and '
            '"output", and may have "drafts" and "draft_probs"'
        )
    output = _tokens(entry["output"], f"{where}: output")
    drafts, rows = entry.get("drafts"), entry.get("draft_probs")
    drafts = None if drafts is None else _tokens(drafts, f"{where}: drafts")
    target = _rows(entry["target_probs"], f"{where}: target_probs")
    draft = None if rows is None else _rows(rows, f"{where}: draft_probs")
    if not output:
        raise InvalidInputError(f"{where}: the output is empty; leave out steps without tokens")
    _check_counts(output, drafts, target, draft, where)
    drafts = drafts or ()
    rows_given = [*target, *(draft or ())]
    sizes = {row.size for row in rows_given if not isinstance(row, SparseProbs)}
    if len(sizes) > 1:
        raise InvalidInputError(
            f"{where}: rows of {' and '.join(map(str, sorted(sizes)))} tokens; all must have V"
        )
    listed = [row.tokens for row in rows_given if isinstance(row, SparseProbs)]
    ids = np.unique(
        np.concatenate([*listed, *map(np.arange, sizes), output, drafts]).astype(np.int64)
    )
    if sizes and ids[-1] >= (size := sizes.pop()):
        raise InvalidInputError(f"{where}: token {ids[-1]}, but the rows have {size} tokens")
    return Step(
        ids,
        _dense(target, ids, f"{where}: target_probs", slack),
        None if draft is None else _dense(draft, ids, f"{where}: draft_probs", slack),
        tuple(np.searchsorted(ids, drafts).tolist()),
        tuple(np.searchsorted(ids, output).tolist()),
    )


def _check_counts(
    output: tuple[int, ...],
    drafts: tuple[int, ...] | None,
    target: list[Any],
    draft: list[Any] | None,
    where: str,
) -> None:
    """Raise unless the rows fit the drafts or, if there are no drafts, the output."""
    if drafts is None:
        if draft is None and len(target) >= len(output):
            return
        raise InvalidInputError(
            f"{where}: {len(target)} target rows for {len(output)} tokens without drafts; give a "
            "target row for each token of the output, and no draft rows"
        )
    if len(target) != len(drafts) + 1 or (draft is not None and len(draft) != len(drafts)):
        rows = "" if draft is None else f" and {len(draft)} draft rows"
        raise InvalidInputError(
            f"{where}: {len(target)} target rows{rows} for {len(drafts)} drafts; give one draft "
            "row for each draft, and one more target row"
        )
    if len(output) > len(drafts) + 1 or output[:-1] != drafts[: len(output) - 1]:
        raise InvalidInputError(
            f"{where}: the output {shown(list(output))} differs from the drafts "
            f"{shown(list(drafts))} before its last token, but target rows follow the drafts; for "
            "several chains or trees, record target rows along the output, without drafts"
        )


def _tokens(values: Any, name: str) -> tuple[int, ...]:
    array = as_array(values, name, InvalidInputError)
    tokens = [whole(token) for token in array.ravel().tolist()]
    if array.ndim != 1 or any(token is None or not 0 <= token < 2**62 for token in tokens):
        raise InvalidInputError(f"{name} = {shown(values)}; give a list of tokens, at least 0")
    return tuple(token for token in tokens if token is not None)


def _rows(values: Any, name: str) -> list[Any]:
    """Read rows: lists as float arrays [V], objects with tokens as keys as `SparseProbs`."""
    if isinstance(values, str | Mapping) or not hasattr(values, "__len__"):
        raise InvalidInputError(f"{name} = {shown(values)}; give a list of rows")
    rows: list[Any] = []
    for i, row in enumerate(values):
        where = f"{name}, row {i}"
        try:
            if isinstance(row, Mapping):
                tokens = np.array([int(token) for token in row], dtype=np.int64)
                order = np.argsort(tokens)
                if (np.diff(tokens[order]) == 0).any() or (tokens < 0).any():
                    raise ValueError("a token is below 0 or occurs twice")
                probs = np.array(list(row.values()), dtype=np.float64)
                rows.append(SparseProbs.from_support(tokens[order], probs[order]))
            elif isinstance(row, SparseProbs):
                rows.append(row)
            else:
                dense = np.asarray(as_array(row, where, InvalidInputError), dtype=np.float64)
                if dense.ndim != 1 or not dense.size:
                    raise ValueError(f"an array of shape {dense.shape}")
                rows.append(dense)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(
                f"{where} is not a distribution ({error!s:.80}); give V probabilities, or an "
                "object from tokens to probabilities"
            ) from None
    return rows


def _dense(rows: list[Any], ids: npt.NDArray[np.int64], name: str, slack: float) -> Floats:
    """Restrict rows to the tokens `ids`, and divide them by their sums: array [m, U]."""
    dense = np.zeros((len(rows), ids.size))
    for i, row in enumerate(rows):
        if isinstance(row, SparseProbs):
            dense[i, np.searchsorted(ids, row.tokens)] = row.probabilities
        else:
            # With a full row, the ids are all tokens.
            dense[i] = row
    for i, total in enumerate(dense.sum(axis=1).tolist()):
        if not (np.isfinite(total) and (dense[i] >= 0).all()):
            raise InvalidInputError(f"{name}, row {i} has an entry that is not a probability")
        if not abs(total - 1) <= slack:
            raise InvalidInputError(
                f"{name}, row {i} sums to {total:.6g}; it must sum to 1 up to the rounding "
                f"{slack:g}: record all tokens with positive probability, with all digits, or "
                "allow a larger rounding"
            )
    return np.asarray(dense / dense.sum(axis=1, keepdims=True))
