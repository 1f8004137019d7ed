"""`Transport`: the joint distribution of drafts and output, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, as_number
from otm._core.display.text import html_table, shown, text_table
from otm.errors import CertificateError, InvalidInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROWS, COLUMNS = 14, 7
"""Largest number of rows and columns in a printed table; `Transport.mass` has every entry."""

PLOT_LIMIT = 40
"""Largest number of rows and columns in a plot."""

TOLERANCE = 1e-12
"""Largest allowed error of a marginal in floats."""

OTHERS = "others"


@dataclass(frozen=True, eq=False, repr=False)
class Transport:
    r"""The joint distribution of drafts and output token; printed as a table with both marginals.

    Each entry is the probability that the drafts are those of the row and the output is the token
    of the column.  Brackets mark accepted mass: entries whose token is one of the drafts.

    Attributes
    ----------
    sets : tuple of tuple of int
        The draft tokens of each row, in ascending order; tuples of drafts that differ only in
        their order share one row.
    tokens : int array [n]
        The output token of each column.
    mass : array [S, n]
        Joint probabilities.
    labels : tuple of str
        The name of each token in tables and plots.

    Examples
    --------
    >>> import otm
    >>> plan = otm.solve([0.75, 0.25], [0.25, 0.75], k=2).plan
    >>> transport = plan.transport(labels=["no", "yes"])
    >>> transport
    drafts \ output  no        yes       drafted
    ---------------  --------  --------  -------
    no, no           [0.2500]  0.3125    0.5625
    no, yes          [0.0000]  [0.3750]  0.3750
    yes, yes         0.0000    [0.0625]  0.0625
    output           0.2500    0.7500    1.0000
    >>> round(transport.accepted, 4)
    0.6875
    """

    sets: tuple[tuple[int, ...], ...]
    tokens: npt.NDArray[np.int64]
    mass: Probs
    labels: tuple[str, ...]
    _drafted: Probs = field(repr=False)
    _output: Probs = field(repr=False)

    @property
    def members(self) -> npt.NDArray[np.bool_]:
        """Whether each set of drafts contains each token: array [S, n]."""
        return np.array([np.isin(self.tokens, drafts) for drafts in self.sets])

    @property
    def accepted(self) -> Number:
        """Probability that the output is one of the drafts."""
        return as_number((self.mass * self.members).sum())

    def check(self) -> None:
        """Check both marginals: the distributions of the drafts and of the output.

        Raises
        ------
        CertificateError
            If a row does not sum to the probability of its drafts, or a column does not sum to the
            output probability of its token: exactly for fractions, up to 10^−12 for floats.
        """
        marginals = ((1, self._drafted, "set of drafts"), (0, self._output, "token"))
        for axis, probs, what in marginals:
            sums = self.mass.sum(axis=axis)
            tolerance = 0 if isinstance(sums[0], Fraction) else TOLERANCE
            if (off := np.abs(sums - probs)).max() > tolerance:
                place = int(off.argmax())
                raise CertificateError(
                    f"the entries of {what} {place} sum to {sums[place]} instead of its "
                    f"probability {probs[place]}, so this is not a transport plan"
                )

    def __repr__(self) -> str:
        heading, *rows = self._table
        return text_table(heading, rows)

    def _repr_html_(self) -> str:
        heading, *rows = self._table
        return html_table(rows, heading=heading)

    @property
    def _table(self) -> list[list[str]]:
        """Cells of the printed table: heading, rows and marginals; a large table is truncated."""
        columns, rows = min(len(self.tokens), COLUMNS), min(len(self.sets), ROWS)
        members, drafted = self.members, self.mass.sum(axis=1)
        cut = len(self.tokens) > columns
        heading = ["drafts \\ output", *self.labels[:columns], *[OTHERS] * cut, "drafted"]
        table = [heading]
        for row in range(rows):
            cells = [
                f"[{_text(mass)}]" if accepted else _text(mass)
                for mass, accepted in zip(
                    self.mass[row, :columns], members[row, :columns], strict=True
                )
            ]
            others = [_text(self.mass[row, columns:].sum())] * cut
            table.append([self._name(row), *cells, *others, _text(drafted[row])])
        if len(self.sets) > rows:
            table.append([f"{len(self.sets) - rows:,} {OTHERS}", *self._sums(rows, columns, cut)])
        return [*table, ["output", *self._sums(0, columns, cut)]]

    def _sums(self, first: int, columns: int, cut: bool) -> list[str]:
        """Return the cells of a row with the sums of all rows from `first` on."""
        sums = self.mass[first:].sum(axis=0)
        others = [sums[columns:].sum()] * cut
        return [_text(mass) for mass in (*sums[:columns], *others, sums.sum())]

    def _name(self, row: int) -> str:
        """Return the labels of the drafts of a row."""
        names = dict(zip(self.tokens.tolist(), self.labels, strict=True))
        return ", ".join(names[token] for token in self.sets[row])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the joint distribution as a heat map, with frames around accepted entries.

        Parameters
        ----------
        ax : Axes, optional
            Matplotlib axes to draw on.  If left out, a new pyplot figure is created.

        Returns
        -------
        Axes
            The axes with the plot; `ax.figure.savefig` saves it.

        Raises
        ------
        InvalidInputError
            If there are more than 40 sets of drafts, or more than 40 tokens.
        MissingDependencyError
            If matplotlib is not installed.
        """
        if max(self.mass.shape) > PLOT_LIMIT:
            raise InvalidInputError(
                f"{self.mass.shape[0]} sets of drafts and {self.mass.shape[1]} tokens; a plot has "
                f"at most {PLOT_LIMIT} of each: use `mass`"
            )
        from otm._core.drawing import drawing_on

        with drawing_on(ax, 1.3 + 0.24 * len(self.sets), 2.6 + 0.4 * len(self.tokens)) as axes:
            image = axes.imshow(self.mass.astype(np.float64), cmap="Blues", vmin=0, aspect="auto")
            axes.figure.colorbar(image, ax=axes, label="probability")
            _frame(axes, self.members)
            axes.set_xticks(range(len(self.tokens)), self.labels)
            axes.set_yticks(range(len(self.sets)), [self._name(r) for r in range(len(self.sets))])
            axes.set(xlabel="output token (frame: one of the drafts)", ylabel="drafts")
            axes.grid(visible=False)
        return axes


def _frame(axes: Axes, members: npt.NDArray[np.bool_]) -> None:
    """Draw a frame around each accepted entry."""
    from matplotlib.patches import Rectangle

    from otm._core.drawing import COLOURS

    for row, column in np.argwhere(members):
        corner = column - 0.46, row - 0.46
        axes.add_patch(Rectangle(corner, 0.92, 0.92, fill=False, edgecolor=COLOURS[1]))


def _text(mass: Any) -> str:
    """Format a probability: four decimals, or a fraction if its text is short."""
    if isinstance(mass, Fraction) and len(str(mass)) <= 9:
        return str(mass)
    return f"{float(mass):.4f}"


def token_labels(labels: Any, tokens: npt.NDArray[np.int64]) -> tuple[str, ...]:
    """Return a label for each token: the argument, or the token ids if it is None."""
    if labels is None:
        return tuple(map(str, tokens.tolist()))
    several = isinstance(labels, Iterable) and not isinstance(labels, str)
    names = tuple(map(str, labels)) if several else ()
    if len(names) != tokens.size:
        count = f"{len(names)} labels" if several else f"labels = {shown(labels)}"
        raise InvalidInputError(
            f"{count} for {tokens.size} tokens; give one for each, in the order of problem.tokens"
        )
    return names


def by_set(
    tuples: Iterable[tuple[tuple[int, ...], Number]],
) -> tuple[list[tuple[int, ...]], list[int], list[Number], list[tuple[int, ...]]]:
    """Group tuples of drafts by their sorted tokens.

    Return the sets, then for each tuple the index of its set, its mass, and the tuple itself.
    """
    places: dict[tuple[int, ...], int] = {}
    rows, masses, drafts = [], [], []
    for each, mass in tuples:
        rows.append(places.setdefault(tuple(sorted(each)), len(places)))
        masses.append(mass)
        drafts.append(each)
    return list(places), rows, masses, drafts
