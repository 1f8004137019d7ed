"""`Certificate`: build a certificate from a solution, check it in floats, save it, and load it.

`otm.certificate` explains the mathematics of the check and implements it in integers, which is
slow.

The check here uses floats and bounds every rounding error.  If it accepts a certificate, the
integer check accepts it too; if it is undecided, the integer check decides.  Bins of tokens with
equal rounded ratios q/p keep the check valid.  Rounding is monotone, so only tokens with equal
rounded ratios can be in the wrong order.  Lowering v/p to the least ratio in each bin makes the
checked sets exactly the level sets of v/p, and the error margins cover the change of v.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from otm import certificate
from otm._core import certificate_json
from otm._core.arithmetic import (
    TINY,
    Frozen,
    Number,
    Probs,
    as_integers,
    at_least_once,
    is_exact,
    sum_error,
)
from otm._core.display.reprs import FactsRepr, number_text
from otm._core.ratios.bins import RatioBins, in_bins
from otm.coupling.optimal.plan import OptimalPlan
from otm.errors import CertificateError
from otm.optimum.cut import Cut, best_prefix, cut_lower_bounds, prefix_values
from otm.problem import Problem

LARGEST_WRITTEN_PLAN = 256
"""A certificate contains the table of the plan up to this number of draft tuples, if k ≤ 8."""


def rounding_error(value: Any, problem: Problem) -> Any:
    """Bound the rounding error of an accepted mass or of the value of a cut (Theorem 8.3).

    Each mass from `RatioBins` is a sum, with the rounding error of summation and a few further
    errors.  The power k adds five rounding errors for each bit of k.
    """
    n, k, unit = problem.n, problem.k, 2.0**-53
    of_rests = n * unit if in_bins(problem.draft) else sum_error(n)
    rests = np.minimum(of_rests * value, (k + 1.0) * of_rests * n * unit)
    return (16 + 5 * k.bit_length()) * unit * value + rests + TINY


def rounded_bounds(
    bins: RatioBins, problem: Problem, cut: npt.NDArray[np.int64], cap: float
) -> tuple[float, float]:
    """Return the accepted mass at the cap, rounded down, and the value of the cut, rounded up."""
    inside = np.zeros(problem.n, dtype=bool)
    inside[cut] = True
    above, below = bins.mass(problem.draft, ~inside), bins.mass(problem.target, inside)
    upper = below + at_least_once(above, problem.k)
    # A sum of zeros has no rounding error.
    upper += rounding_error(upper, problem) if upper > 0 else 0.0
    lower = float(bins.capped_mass(cap))
    return max(0.0, float(lower - rounding_error(lower, problem))), min(1.0, float(upper))


def proves_accepted_mass(bins: RatioBins, problem: Problem, cap: float) -> bool:
    """Whether floats prove v(A) ≤ 1 − (1 − p(A))^k on the level sets A of v = min(q, cap · p).

    The level sets are the complements of prefixes H, and v(A) = Σv − q(H).  So
    v(A) ≤ 1 − (1 − p(A))^k holds if q(H) + 1 − p(H)^k ≥ Σv for every prefix H.
    """
    # If cap ≤ 1, then v ≤ p, so the inequality holds for every set.
    if cap <= 1:
        return True
    total = float(bins.capped_mass(cap))
    total += rounding_error(total, problem)
    while True:
        values, rough = prefix_values(bins, problem.k)
        if (values - rounding_error(values, problem)).min() < total:
            return False
        places = bins.wide[rough - rounding_error(rough, problem) < total]
        bound = cut_lower_bounds(bins, problem.k, places)
        places = places[bound - rounding_error(bound, problem) < total]
        if not places.size:
            return True
        bins = bins.split(places)


@dataclass(frozen=True, eq=False)
class Certificate(FactsRepr, Frozen):
    """Proof that the optimal acceptance probability α_k lies in [lower, upper], for i.i.d. drafts.

    A cut H proves the upper bound, and an accepted mass v = min(q, cap · p) proves the lower bound
    (Theorems 8.1 and 8.2 of docs/theory/certificates.md).  For fractions the gap is zero.  For
    floats the bounds are rounded outwards, and they hold in exact arithmetic for the distributions
    p/Σp and q/Σq.

    Attributes
    ----------
    problem : Problem
        The distributions and k.
    cut : int array [|H|]
        The tokens of H, as positions in `problem.tokens`.
    cap : float or Fraction
        The cap of the accepted mass v.
    lower, upper : float or Fraction
        The proved bounds: lower ≤ α_k ≤ upper.
    method : str
        The method that found the solution; it is not part of the proof.

    Examples
    --------
    >>> from otm import solve
    >>> draft, target = [Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)]
    >>> certificate = solve(draft, target, k=2).certificate
    >>> certificate.check()  # raises an error unless the proof holds
    >>> certificate.lower, certificate.upper, certificate.cut.tolist()
    (Fraction(11, 16), Fraction(11, 16), [0])
    """

    problem: Problem
    cut: npt.NDArray[np.int64]
    cap: Number
    lower: Number
    upper: Number
    method: str

    @classmethod
    def build(cls, problem: Problem, alpha: Number, cut: Cut, method: str) -> Certificate:
        """Build a certificate from an attainable acceptance probability and a cut.

        Parameters
        ----------
        problem : Problem
            The solved problem.
        alpha : float or Fraction
            An acceptance probability that some rule attains.
        cut : Cut
            The cut for the upper bound.
        method : str
            The name of the method that found the solution.

        Returns
        -------
        Certificate
            A certificate that is not checked yet; `check` raises if the arguments do not prove it.
        """
        _, _, bins = best_prefix(problem)
        if problem.exact:
            cap, bins = bins.cap_of_mass(alpha)
            cap = Fraction(problem.k) if cap is None else cap
            return cls(problem, cut.tokens, cap, bins.capped_mass(cap), cut.value, method)
        # The certificate claims slightly less than α, so that floats can prove every inequality.
        cap, bins = bins.cap_of_mass(alpha - 4 * rounding_error(alpha, problem))
        cap = float(problem.k) if cap is None else max(float(cap), 0.0)
        lower, upper = rounded_bounds(bins, problem, cut.tokens, cap)
        return cls(problem, cut.tokens, cap, lower, upper, method)

    @property
    def _title(self) -> str:
        return "Certificate of OTM-k"

    def _lines(self) -> list[tuple[str, str]]:
        problem = self.problem
        return [
            ("problem", f"n = {problem.n:,} tokens, k = {problem.k} drafts"),
            ("lower", f"{number_text(self.lower)}: Σ min(q, c p), c = {number_text(self.cap)}"),
            ("upper", f"{number_text(self.upper)}: the cut of {self.cut.size:,} tokens"),
            ("gap", f"{float(self.gap):.0g}"),
        ]

    @property
    def gap(self) -> Number:
        """The difference upper − lower; 0 proves that the solution is optimal."""
        return self.upper - self.lower

    def check(self) -> None:
        """Check the proof; raise if it does not hold.

        Floats are checked in arrays with bounds on the rounding errors (Theorem 8.3 of
        docs/theory/certificates.md).  The method is equivalent to `otm.certificate.check` but
        faster.  If the floats leave the claim undecided, or the numbers are fractions,
        `otm.certificate.check` decides.

        Raises
        ------
        CertificateError
            If the certificate does not prove lower ≤ α_k ≤ upper.
        """
        self._check_types()
        try:
            if not self.problem.exact and self._holds_in_floats():
                return
            document = self.to_document()
        except (TypeError, ValueError, OverflowError) as error:
            raise CertificateError(f"the certificate is malformed: {error}") from error
        certificate_json.check(document, certificate.check)

    def to_document(self) -> dict[str, Any]:
        """Return the certificate as a JSON document for `otm.certificate.check`."""
        lower, upper = Fraction(self.lower), Fraction(self.upper)
        document: dict[str, Any] = {
            "schema": certificate.SCHEMA,
            "draft": _probs_as_json(self.problem.draft),
            "target": _probs_as_json(self.problem.target),
            "k": self.problem.k,
            "draft_law": "iid",
            "cut": self.cut.tolist(),
            "cap": certificate_json.fraction(Fraction(self.cap)),
            "plan": self._plan_table(),
            **certificate_json.ends(lower, upper, self.method),
        }
        document["inputs_sha256"] = certificate.inputs_digest(document)
        document["sha256"] = certificate.digest(document)
        return document

    def save(self, path: str | PathLike[str]) -> None:
        """Write the certificate as JSON.

        Parameters
        ----------
        path : str or Path
            File to write; an existing file is overwritten.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from otm import solve
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     solve([0.75, 0.25], [0.25, 0.75], 2).certificate.save(Path(folder) / "proof.json")
        ...     print(round(Certificate.load(Path(folder) / "proof.json").lower, 12))
        0.6875
        """
        # Each field is one line of the file.
        fields = [
            f"{json.dumps(name)}: {json.dumps(value, allow_nan=False)}"
            for name, value in self.to_document().items()
        ]
        Path(path).write_text("{" + ",\n ".join(fields) + "}\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Certificate:
        """Read and check a certificate.

        Parameters
        ----------
        path : str or Path
            File that `save` wrote, or a file of another program in the same schema.

        Returns
        -------
        Certificate
            The checked certificate, in floats if they represent the file exactly, otherwise in
            fractions.

        Raises
        ------
        CertificateError
            If the file is not a certificate or does not prove its claim.  If the file cannot be
            read, the error is that of `pathlib.Path.read_text`.
        """
        return cls._from_document(certificate_json.read(path, certificate.check))

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> Certificate:
        """Build from a checked document: in floats if they are exact, otherwise in fractions."""
        k, method = document["k"], document["method"]
        cut = np.array(document["cut"], dtype=np.int64)
        ratios = (certificate.ratio(document[name]) for name in ("cap", "lower", "upper"))
        cap, lower, upper = (Fraction(*ratio) for ratio in ratios)
        try:
            draft, target = ([float.fromhex(x) for x in document[y]] for y in ("draft", "target"))
            problem = Problem(draft, target, k)
            in_floats = cls(problem, cut, float(cap), float(lower), float(upper), method)
            probs_kept = (problem.draft.tolist(), problem.target.tolist()) == (draft, target)
            ends = (in_floats.cap, in_floats.lower, in_floats.upper)
            if probs_kept and ends == (cap, lower, upper):
                return in_floats
        except (TypeError, ValueError, OverflowError):
            # The document has integers, unnormalised weights, or bounds beyond the float range.
            pass
        problem = Problem(_exact_probs(document, "draft"), _exact_probs(document, "target"), k)
        return cls(problem, cut, cap, lower, upper, method)

    def _holds_in_floats(self) -> bool:
        """Whether floats with bounded rounding errors prove the claim."""
        problem, cap = self.problem, float(self.cap)
        # The bins are computed again, because the check must not trust the solution.
        bins = RatioBins.of(problem.draft, problem.target)
        if not (self._is_well_formed() and proves_accepted_mass(bins, problem, cap)):
            return False
        lower, upper = rounded_bounds(bins, problem, self.cut, cap)
        return bool(self.lower <= lower and upper <= self.upper)

    def _check_types(self) -> None:
        """Raise if a field has a wrong type, which `dataclasses.replace` does not check."""
        cut: Any = self.cut
        ends: tuple[Any, ...] = self.cap, self.lower, self.upper
        right = {
            "a Problem as its problem": isinstance(self.problem, Problem),
            "a one-dimensional array of integers as its cut": isinstance(cut, np.ndarray)
            and cut.dtype.kind in "iu" and cut.ndim == 1,
            "numbers as its cap, lower and upper": all(
                isinstance(x, int | float | Fraction) and not isinstance(x, bool) for x in ends
            ),
            "a string as its method": isinstance(self.method, str),
        }  # fmt: skip
        for name, is_right in right.items():
            if not is_right:
                raise CertificateError(f"the certificate is malformed: it needs {name}")

    def _is_well_formed(self) -> bool:
        """Whether the cut is a set of tokens, the numbers are finite and the method is known."""
        tokens = np.zeros(self.problem.n, dtype=bool)
        if self.cut.size and (self.cut.min() < 0 or self.cut.max() >= self.problem.n):
            return False
        tokens[self.cut] = True
        return bool(
            np.count_nonzero(tokens) == self.cut.size
            and self.cap >= 0
            and all(math.isfinite(x) for x in (self.cap, self.lower, self.upper))
            and self.method in certificate.METHODS
        )

    def _plan_table(self) -> dict[str, Any] | None:
        """Return the table of an optimal plan over a common denominator; None if it is large."""
        if self.problem.k > 8 or self.problem.n**self.problem.k > LARGEST_WRITTEN_PLAN:
            return None
        problem = self.problem.to_exact()
        plan = OptimalPlan(problem)
        tuples = list(product(np.flatnonzero(problem.draft).tolist(), repeat=problem.k))
        outputs = plan.conditional(problem.ids(np.array(tuples)))
        masses = [
            (drafts, token, math.prod(problem.draft[list(drafts)]) * share)
            for drafts, output in zip(tuples, outputs, strict=True)
            for token, share in enumerate(output)
            if share
        ]
        denominator = math.lcm(*(mass.denominator for _, _, mass in masses))
        entries = [
            [list(drafts), y, certificate_json.integer(int(mass * denominator))]
            for drafts, y, mass in masses
        ]
        return {"denominator": certificate_json.integer(denominator), "entries": entries}


def _exact_probs(document: dict[str, Any], name: str) -> list[Fraction]:
    """Return the normalised weights of a document as fractions."""
    weights = certificate.weights(document[name], name)
    total = sum(weights)
    return [Fraction(weight, total) for weight in weights]


def _probs_as_json(probs: Probs) -> list[Any]:
    """Return the JSON form of a distribution: integer weights, or hexadecimal floats."""
    if is_exact(probs):
        return [certificate_json.integer(value) for value in as_integers(probs)[0]]
    return [value.hex() for value in probs.tolist()]
