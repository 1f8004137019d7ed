"""Symbolic uniforms: numbers that are not drawn, but split where a program compares them.

A program that only compares its uniforms is a finite tree of decisions.  `Region` is one path from
the root to a leaf: the set of uniforms that take it, whose volume is its probability.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import as_fraction
from otm.errors import InvalidInputError, ProblemTooLargeError

MAX_UNIFORMS = 64
"""Most uniforms that a run of a function of a source may take."""

Cut: TypeAlias = tuple[Fraction, int]
"""A place between numbers: (t, 0) is just below t, (t, 1) just above it."""

START: Cut = (Fraction(0), 0)
END: Cut = (Fraction(1), 0)


class Region:
    """The uniforms that take one path, as far as the comparisons along it have told.

    Every uniform lies between two cuts.  Uniforms that were compared with each other lie between
    the same cuts until a comparison parts them, and their order is known in part.  Not more than
    `max_isolated` uniforms come to lie on a single value, such as 0, unless the path leaves no
    other.
    """

    def __init__(
        self,
        size: int,
        script: Sequence[int] = (),
        max_size: int = MAX_UNIFORMS,
        max_isolated: float = math.inf,
    ) -> None:
        self.between: list[tuple[Cut, Cut]] = [(START, END)] * size
        self._max_size, self._max_isolated, self._isolated = max_size, max_isolated, 0
        self._before: set[tuple[int, int]] = set()  # (i, j): u_i < u_j, between the same cuts
        self._script = script
        self._choices: list[tuple[int, int]] = []  # the outcome taken, and of how many

    def take(self, m: int) -> npt.NDArray[Any]:
        """Add m independent uniforms, and return them: a source as decoding loops take one."""
        first = len(self.between)
        self.between += [(START, END)] * m
        if len(self.between) > self._max_size:
            raise too_many_uniforms(len(self.between), self._max_size)
        uniforms = np.empty(m, dtype=object)
        uniforms[:] = [SymbolicUniform(self, first + i) for i in range(m)]
        return uniforms

    def is_below(self, i: int, cut: Cut) -> bool:
        """Decide whether uniform i lies below a cut."""
        low, high = self.between[i]
        if not low < cut < high:
            return cut >= high
        if not self._before:  # as nearly always: both outcomes are possible
            parts = (low, cut), (cut, high)
            single = cut[0] in (low[0], high[0])
            if single and self._isolated >= self._max_isolated:
                below_cut = cut[0] > low[0]
            else:
                below_cut = self._choose(2) == 0
            self.between[i] = part = parts[not below_cut]
            self._isolated += part[0][0] == part[1][0]
            return below_cut
        members = self._linked(i)
        halves = [
            below
            for size in range(len(members), -1, -1)
            for below in itertools.combinations(members, size)
            if self._can_part(below, members, cut)
        ]
        below = halves[self._choose(len(halves))]
        for j in members:
            self.between[j] = (low, cut) if j in below else (cut, high)
        self._before = {(a, b) for a, b in self._before if self.between[a] == self.between[b]}
        return i in below

    def is_before(self, i: int, j: int) -> bool:
        """Decide whether uniform i is less than uniform j; ties of two uniforms are left out."""
        while self.between[i] != self.between[j]:
            (a, b), (c, d) = self.between[i], self.between[j]
            if b <= c or d <= a:
                return b <= c
            inside = [(j, x) for x in (a, b) if c < x < d] + [(i, x) for x in (c, d) if a < x < b]
            self.is_below(*inside[0])
        if i == j or _length(self.between[i]) == 0:
            return False
        orders = self._orders(sorted({*self._linked(i), *self._linked(j)}))
        answers = sorted({order.index(i) < order.index(j) for order in orders})
        answer = answers[self._choose(len(answers))] if len(answers) > 1 else answers[0]
        self._before.add((i, j) if answer else (j, i))
        return answer

    def volume(self) -> Fraction:
        """Probability that independent uniforms lie in the region."""
        volume = Fraction(1)
        for members in self._groups():
            volume *= _length(self.between[members[0]]) ** len(members)
            if len(members) > 1:
                volume *= Fraction(len(self._orders(members)), math.factorial(len(members)))
        return volume

    def example(self) -> list[Fraction]:
        """One point of the region, in its interior if it has one."""
        point = [Fraction(0)] * len(self.between)
        for members in self._groups():
            (low, _), (high, _) = self.between[members[0]]
            order = self._orders(members)[0]
            for place, i in enumerate(order, start=1):
                point[i] = low + (high - low) * Fraction(place, len(order) + 1)
        return point

    def width(self) -> Fraction:
        """Length of the shortest interval between the cuts of one uniform."""
        return min(map(_length, self.between), default=Fraction(1))

    def next_script(self) -> list[int] | None:
        """Script of the next path in depth-first order; None after the last."""
        choices = list(self._choices)
        while choices and choices[-1][0] + 1 == choices[-1][1]:
            choices.pop()
        script = [taken for taken, _ in choices]
        return [*script[:-1], script[-1] + 1] if script else None

    def _choose(self, options: int) -> int:
        place = len(self._choices)
        taken = self._script[place] if place < len(self._script) else 0
        self._choices.append((taken, options))
        return taken

    def _linked(self, i: int) -> list[int]:
        """List the uniforms that i was compared with, directly or through others, and i."""
        linked, new = {i}, {i}
        while new:
            new = {x for pair in self._before if linked & {*pair} for x in pair} - linked
            linked |= new
        return sorted(linked)

    def _groups(self) -> list[list[int]]:
        if not self._before:
            return [[i] for i in range(len(self.between))]
        groups = [self._linked(i) for i in range(len(self.between))]
        return [group for i, group in enumerate(groups) if group[0] == i]

    def _orders(self, members: Sequence[int]) -> list[tuple[int, ...]]:
        """List the orders of some uniforms that agree with what is known."""
        known = [(a, b) for a, b in self._before if a in members and b in members]
        return [
            order
            for order in itertools.permutations(members)
            if all(order.index(a) < order.index(b) for a, b in known)
        ]

    def _can_part(self, below: Sequence[int], members: Sequence[int], cut: Cut) -> bool:
        """Whether some of the linked members, and only these, can lie below a cut."""
        low, high = self.between[members[0]]
        for a, b in self._before:
            if a in members:
                if b in below and a not in below:
                    return False
                if (a in below) == (b in below):  # two different numbers need room
                    half = (low, cut) if a in below else (cut, high)
                    if _length(half) == 0:
                        return False
        return True


@dataclass(eq=False, repr=False, slots=True)
class SymbolicUniform:  # noqa: PLW1641  no hash: == narrows the region
    """A uniform on [0, 1), up to an affine map, that only comparisons make more definite.

    It can be added to and multiplied by integers and fractions, and compared with numbers and with
    other symbolic uniforms of the same scale and shift.  Anything else, such as turning it into a
    float, raises: a program that does so cannot be explored.

    Parameters
    ----------
    region : Region
        Where the uniforms lie on this path; comparisons narrow it.
    number : int
        Index of this uniform among those of the region.
    scale, shift : Fraction
        The value is scale · u + shift.

    Examples
    --------
    >>> region = Region(1)
    >>> uniform = SymbolicUniform(region, 0)
    >>> uniform < Fraction(1, 4), region.volume()
    (True, Fraction(1, 4))
    >>> 2 * uniform + 1
    2 * u[0] + 1
    """

    region: Region
    number: int
    scale: Fraction = Fraction(1)
    shift: Fraction = Fraction(0)

    def __repr__(self) -> str:
        return f"{self.scale} * u[{self.number}] + {self.shift}"

    def __bool__(self) -> bool:
        raise InvalidInputError(
            f"the truth value of {self} was asked for; compare a symbolic uniform with a number"
        )

    def __mul__(self, factor: object) -> SymbolicUniform | Fraction:
        if not isinstance(factor, numbers.Rational):
            return NotImplemented
        scale, shift = self.scale * as_fraction(factor), self.shift * as_fraction(factor)
        return SymbolicUniform(self.region, self.number, scale, shift) if scale else shift

    def __add__(self, term: object) -> SymbolicUniform:
        if not isinstance(term, numbers.Rational):
            return NotImplemented
        return SymbolicUniform(self.region, self.number, self.scale, self.shift + as_fraction(term))

    __rmul__ = __mul__
    __radd__ = __add__

    def __neg__(self) -> SymbolicUniform:
        return SymbolicUniform(self.region, self.number, -self.scale, -self.shift)

    def __sub__(self, term: object) -> SymbolicUniform:
        return self + -term if isinstance(term, numbers.Rational) else NotImplemented

    def __rsub__(self, term: object) -> SymbolicUniform:
        return -self + term

    def __lt__(self, other: object) -> bool:
        if isinstance(other, SymbolicUniform):
            return self._is_before(other)
        return self._is_below(other, 0)

    def __le__(self, other: object) -> bool:
        if isinstance(other, SymbolicUniform):
            return not other._is_before(self)
        return self._is_below(other, 1)

    def __gt__(self, other: object) -> bool:
        return not self <= other

    def __ge__(self, other: object) -> bool:
        return not self < other

    def __eq__(self, other: object) -> bool:
        return self <= other and self >= other

    def _is_below(self, other: object, side: int) -> bool:
        """Decide self < other (side 0) or self ≤ other (side 1) for a number."""
        if not isinstance(other, numbers.Rational | float):
            return NotImplemented  # type: ignore[no-any-return]
        place = other if type(other) is Fraction else as_fraction(other)
        if self.shift or self.scale != 1:
            place = (place - self.shift) / self.scale
        if self.scale > 0:
            return self.region.is_below(self.number, (place, side))
        return not self.region.is_below(self.number, (place, 1 - side))

    def _is_before(self, other: SymbolicUniform) -> bool:
        """Decide self < other for another symbolic uniform."""
        if other is self:  # as `np.searchsorted` asks
            return False
        low, high = self._range()
        other_low, other_high = other._range()
        if high <= other_low or other_high <= low:
            return high <= other_low
        if (self.scale, self.shift) != (other.scale, other.shift):
            raise InvalidInputError(
                f"the comparison of {self} with {other} is not explored; symbolic uniforms can be "
                "compared with numbers, and with each other where scale and shift are the same"
            )
        pair = (self.number, other.number) if self.scale > 0 else (other.number, self.number)
        return self.region.is_before(*pair)

    def _range(self) -> tuple[Cut, Cut]:
        """Cuts between which the value lies."""
        ends = [
            (self.scale * place + self.shift, side if self.scale > 0 else 1 - side)
            for place, side in self.region.between[self.number]
        ]
        return min(ends), max(ends)


def _length(between: tuple[Cut, Cut]) -> Fraction:
    return between[1][0] - between[0][0]


def too_many_uniforms(taken: int, at_hand: int) -> ProblemTooLargeError:
    """Say that a run takes more uniforms than there are."""
    return ProblemTooLargeError(
        f"a run takes {taken} uniforms or more, and {at_hand} are at hand; let it decide on fewer "
        "drafts and tokens"
    )
