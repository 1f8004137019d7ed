"""The numbers of drafts that a computation on recordings compares, and the recordings' prompts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.display.text import shown
from otm._core.numbers import as_level
from otm.decoding.drafters.base import Branching, as_branching
from otm.decoding.policies import as_gamma
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain.recording import Recording


class ComparedDrafts:
    """Recordings from a list or an iterator, with the numbers of drafts to compare.

    An iterator yields each recording once, so recordings need not stay in memory. Its numbers of
    drafts are unknown before its end: they must be given, and are checked at the end.
    """

    def __init__(
        self,
        recordings: Iterable[Recording],
        ks: Iterable[Branching] | None,
        gammas: Iterable[int] | None,
        level: float,
    ) -> None:
        as_level(level)
        self.is_stream = isinstance(recordings, Iterator)
        self._recordings = recordings
        self._prompts: list[int] = []
        if self.is_stream:
            if ks is None or gammas is None:
                raise InvalidParameterError(
                    "an iterator does not say how many drafts its recordings have; give `ks` and "
                    "`gammas`, or a list from `record`"
                )
            self.ks, self.gammas = _as_numbers(ks, gammas)
        else:
            assert isinstance(recordings, Sequence)
            prompts_of_recordings(recordings, level)
            self.ks, self.gammas = choose_drafts(recordings, ks, gammas)

    def __iter__(self) -> Iterator[Recording]:
        self._prompts = []
        widths: defaultdict[int, int] = defaultdict(int)
        for recording in self._recordings:
            self._prompts.append(as_recording(recording).prompt)
            if self.is_stream:
                _widen(widths, recording)
            yield recording
        if not self._prompts:
            raise InvalidInputError("there are no recordings; make some with `record`")
        if self.is_stream:
            _check_recorded(self.ks, self.gammas, _listed(widths))

    @property
    def prompts(self) -> npt.NDArray[np.int64]:
        """The prompt of each recording, in the order of `sort`."""
        return self.sort(np.array(self._prompts, dtype=np.int64))

    def sort(self, values: Any) -> npt.NDArray[Any]:
        """Sort values of a stream by prompt, as `record` does; keep the order of a list."""
        sorted_values: npt.NDArray[Any] = np.asarray(values)
        if self.is_stream:
            sorted_values = sorted_values[np.argsort(self._prompts, kind="stable")]
        return sorted_values


def choose_drafts(
    recordings: Sequence[Recording],
    ks: Iterable[Branching] | None,
    gammas: Iterable[int] | None,
) -> tuple[list[Branching], list[int]]:
    """Return the requested or recorded numbers of drafts and lengths; raise if too large."""
    of_levels: defaultdict[int, int] = defaultdict(int)
    for recording in recordings:
        _widen(of_levels, recording)
    widths = _listed(of_levels)
    if not widths:
        raise InvalidInputError("these recordings have no drafts; record with a larger depth")
    # Trees that were recorded have few nodes, even if their widest levels have many paths.
    recorded = tuple(widths) if max(widths[1:], default=1) > 1 else widths[0]
    some_ks, some_gammas = _as_numbers(
        [1] if ks is None else ks, [len(widths)] if gammas is None else gammas
    )
    chosen = [recorded] if ks is None else some_ks, some_gammas
    _check_recorded(*chosen, widths)
    return chosen


def prompts_of_recordings(recordings: Sequence[Recording], level: float) -> npt.NDArray[np.int64]:
    """Return the prompt of each recording; raise on an empty list or an invalid level."""
    as_level(level)
    if not recordings:
        raise InvalidInputError("there are no recordings; make some with `record`")
    return np.array([as_recording(recording).prompt for recording in recordings], dtype=np.int64)


def as_recording(recording: object) -> Recording:
    """Return a recording; raise on other objects."""
    if not isinstance(recording, Recording):
        raise InvalidInputError(
            f"the recordings contain {shown(recording)}; give a list of recordings from `record`"
        )
    return recording


def _as_numbers(
    ks: Iterable[Branching], gammas: Iterable[int]
) -> tuple[list[Branching], list[int]]:
    """Return numbers of drafts and lengths; raise if one is invalid or there are none."""
    chosen = [as_branching(k) for k in ks], [as_gamma(gamma) for gamma in gammas]
    if not all(chosen):
        raise InvalidParameterError("`ks` or `gammas` is empty; give at least one K and one γ")
    return chosen


def _check_recorded(ks: Sequence[Branching], gammas: Sequence[int], widths: Sequence[int]) -> None:
    """Raise if the recordings have fewer drafts than requested."""
    for k in ks:
        children = k if isinstance(k, tuple) else (k,)
        if len(children) > len(widths) or any(map(int.__gt__, children, widths)):
            raise InvalidInputError(
                f"k = {k}; nodes of the recordings have at most {tuple(widths)} drafts at each "
                "level: record more drafts, or give a smaller k"
            )
    if (depth := max(gammas)) > len(widths):
        raise InvalidInputError(
            f"γ = {depth}; the recorded drafts have at most {len(widths)} tokens: "
            "record with a larger depth, or give a smaller γ"
        )


def _widen(widths: defaultdict[int, int], recording: Recording) -> None:
    """Raise the largest number of children of a node, for each level of a recording."""
    for node in recording.tree.nodes():
        widths[len(node.path)] = max(widths[len(node.path)], len(node.children))


def _listed(widths: defaultdict[int, int]) -> list[int]:
    return [width for _, width in sorted(widths.items()) if width > 0]
