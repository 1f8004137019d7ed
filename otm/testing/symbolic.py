"""Symbolic uniforms: numbers without a value, whose possible range each comparison splits.

A program that only compares its uniforms is a finite decision tree.  A `Region` describes one path
from the root to a leaf, as the set of uniforms that take this path.  The volume of the region is
the probability of the path.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import as_fraction
from otm.errors import InvalidInputError, ProblemTooLargeError

MAX_UNIFORMS = 64
"""Largest number of uniforms that a function may take from a source."""

Cut: TypeAlias = tuple[float, Fraction, int]
"""A cut of the real line: (_, t, 0) is just below the number t, and (_, t, 1) just above t.

The first entry is the float nearest to t, so that most comparisons of cuts need no fractions.
"""


def cut_at(place: Fraction, side: int) -> Cut:
    """Return the cut just below (side 0) or just above (side 1) a number."""
    try:
        return float(place), place, side
    except OverflowError:
        return math.copysign(math.inf, place), place, side


ZERO, ONE = Fraction(0), Fraction(1)
START, END = cut_at(ZERO, 0), cut_at(ONE, 0)
WHOLE = (START, END)


class Region:
    """The set of values of the uniforms for which a function takes one path of comparisons.

    Every uniform lies between two cuts.  Uniforms that were compared with each other have the same
    cuts until a comparison separates them; their order is partly known.  At most `max_isolated`
    uniforms are restricted to a single value, such as 0, unless the path allows no other value.
    """

    def __init__(
        self,
        size: int,
        script: Sequence[int] = (),
        max_size: int = MAX_UNIFORMS,
        max_isolated: float = math.inf,
    ) -> None:
        self.between: list[tuple[Cut, Cut]] = [WHOLE] * size
        self._max_size, self._max_isolated, self._isolated = max_size, max_isolated, 0
        # A pair (i, j) means u_i < u_j, for two uniforms between the same cuts.
        self._before: set[tuple[int, int]] = set()
        self._script = script
        # For each choice: the index of the outcome, and the number of outcomes.
        self._choices: list[tuple[int, int]] = []

    def take(self, m: int) -> npt.NDArray[Any]:
        """Add m independent uniforms and return them; decoding loops use this as a source."""
        first = len(self.between)
        self.between += [WHOLE] * m
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
        # This is the usual case; both outcomes are possible.
        if not self._before:
            single_below, single_above = cut[:2] == low[:2], cut[:2] == high[:2]
            if (single_below or single_above) and self._isolated >= self._max_isolated:
                below_cut = single_above
            else:
                below_cut = self._choose(2) == 0
            self.between[i] = (low, cut) if below_cut else (cut, high)
            self._isolated += single_below if below_cut else single_above
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
        """Decide whether uniform i is less than uniform j; ties are ignored."""
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
        """Return the probability that independent uniforms lie in the region."""
        if not self._before:
            return _product(each for each in self.between if each is not WHOLE)
        volume = Fraction(1)
        for members in self._groups():
            volume *= _length(self.between[members[0]]) ** len(members)
            if len(members) > 1:
                volume *= Fraction(len(self._orders(members)), math.factorial(len(members)))
        return volume

    def example(self) -> list[Fraction]:
        """Return a point of the region; it is an interior point if one exists."""
        if not self._before:
            return [(low[1] + high[1]) / 2 for low, high in self.between]
        point = [Fraction(0)] * len(self.between)
        for members in self._groups():
            (_, low, _), (_, high, _) = self.between[members[0]]
            order = self._orders(members)[0]
            for place, i in enumerate(order, start=1):
                point[i] = low + (high - low) * Fraction(place, len(order) + 1)
        return point

    def width(self) -> Fraction:
        """Return the length of the shortest interval between the cuts of a uniform."""
        return min(map(_length, self.between), default=Fraction(1))

    def next_script(self) -> list[int] | None:
        """Return the choices of the next path in depth-first order, or None after the last path."""
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
        """List uniform i and all uniforms that are linked to it by comparisons."""
        linked, new = {i}, {i}
        while new:
            new = {x for pair in self._before if linked & {*pair} for x in pair} - linked
            linked |= new
        return sorted(linked)

    def _groups(self) -> list[list[int]]:
        groups = [self._linked(i) for i in range(len(self.between))]
        return [group for i, group in enumerate(groups) if group[0] == i]

    def _orders(self, members: Sequence[int]) -> list[tuple[int, ...]]:
        """List the possible orders of some uniforms."""
        known = [(a, b) for a, b in self._before if a in members and b in members]
        return [
            order
            for order in itertools.permutations(members)
            if all(order.index(a) < order.index(b) for a, b in known)
        ]

    def _can_part(self, below: Sequence[int], members: Sequence[int], cut: Cut) -> bool:
        """Return whether `below` can be exactly the uniforms of `members` that lie below a cut."""
        low, high = self.between[members[0]]
        for a, b in self._before:
            if a in members:
                if b in below and a not in below:
                    return False
                # Two different numbers need an interval of positive length.
                if (a in below) == (b in below):
                    half = (low, cut) if a in below else (cut, high)
                    if _length(half) == 0:
                        return False
        return True


@dataclass(eq=False, repr=False, slots=True)
class SymbolicUniform:  # noqa: PLW1641  There is no hash, because == narrows the region.
    """An affine function of a uniform u on [0, 1), whose range each comparison narrows.

    Integers and fractions can be added to it, and it can be multiplied by them.  It can be compared
    with numbers, and with symbolic uniforms of the same scale and shift.  Every other operation,
    such as a conversion to float, raises an error, because its paths cannot be explored.

    Parameters
    ----------
    region : Region
        Range of all uniforms on this path; comparisons narrow it.
    number : int
        Index of this uniform in the region.
    scale, shift : Fraction
        Coefficients of the value scale · u + shift.

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
    scale: Fraction = ONE
    shift: Fraction = ZERO

    def __repr__(self) -> str:
        return f"{self.scale} * u[{self.number}] + {self.shift}"

    def __bool__(self) -> bool:
        raise InvalidInputError(
            f"{self} was used as a boolean; compare a symbolic uniform with a number instead"
        )

    def __mul__(self, factor: object) -> SymbolicUniform | Fraction:
        if not (type(factor) is Fraction or isinstance(factor, numbers.Rational)):
            return NotImplemented
        if factor == 1:
            return self
        exact = as_fraction(factor)
        scale, shift = self.scale * exact, self.shift * exact
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
        if isinstance(other, SymbolicUniform):
            return other._is_before(self)
        below = self._is_below(other, 1)
        return below if below is NotImplemented else not below

    def __ge__(self, other: object) -> bool:
        return not self < other

    def __eq__(self, other: object) -> bool:
        return self <= other and self >= other

    def _is_below(self, other: object, side: int) -> bool:
        """Decide self < other (side 0) or self ≤ other (side 1) for a number."""
        if type(other) is Fraction:
            place = other
        elif isinstance(other, numbers.Rational | float):
            place = as_fraction(other)
        else:
            return NotImplemented  # type: ignore[no-any-return]
        # This is the usual case.
        if self.scale is ONE and self.shift is ZERO:
            return self.region.is_below(self.number, cut_at(place, side))
        place = (place - self.shift) / self.scale
        if self.scale > 0:
            return self.region.is_below(self.number, cut_at(place, side))
        return not self.region.is_below(self.number, cut_at(place, 1 - side))

    def _is_before(self, other: SymbolicUniform) -> bool:
        """Decide self < other for another symbolic uniform."""
        # `np.searchsorted` compares a uniform with itself.
        if other is self:
            return False
        low, high = self._range()
        other_low, other_high = other._range()
        if high <= other_low or other_high <= low:
            return high <= other_low
        if (self.scale, self.shift) != (other.scale, other.shift):
            raise InvalidInputError(
                f"{self} cannot be compared with {other}; compare symbolic uniforms with numbers, "
                "or with symbolic uniforms of the same scale and shift"
            )
        pair = (self.number, other.number) if self.scale > 0 else (other.number, self.number)
        return self.region.is_before(*pair)

    def _range(self) -> tuple[Cut, Cut]:
        """Return the two cuts between which the value lies."""
        ends = [
            cut_at(self.scale * place + self.shift, side if self.scale > 0 else 1 - side)
            for _, place, side in self.region.between[self.number]
        ]
        return min(ends), max(ends)


def _length(between: tuple[Cut, Cut]) -> Fraction:
    return between[1][1] - between[0][1]


def _product(parts: Iterable[tuple[Cut, Cut]]) -> Fraction:
    """Return the product of interval lengths; only the final fraction is reduced."""
    over = under = 1
    for (_, low, _), (_, high, _) in parts:
        over *= high.numerator * low.denominator - low.numerator * high.denominator
        under *= high.denominator * low.denominator
    return Fraction(over, under)


def too_many_uniforms(taken: int, available: int) -> ProblemTooLargeError:
    """Return the error for a run that takes more uniforms than are available."""
    return ProblemTooLargeError(
        f"a run takes at least {taken} uniforms, but only {available} are available; use fewer "
        "drafts and tokens"
    )
