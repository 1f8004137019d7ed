"""Certificates of block verification's optimum: made from bounds, saved, loaded and checked.

What they prove, and how, is in `otm.block_optimum.certificate`, which checks them with nothing but
the standard library.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from otm._core import certificate_json
from otm._core.arithmetic import Number, as_fraction, at_least_once, rounded
from otm._core.display.reprs import FactsRepr, number_text
from otm.block_optimum import certificate
from otm.block_optimum.hull import PathDrafts
from otm.block_optimum.program import Bounds
from otm.block_optimum.table import TreeDrafts, ending, maximum_flow
from otm.block_optimum.tree import RAREST, Tree
from otm.certificate import CertificateRefusedError, Work, digest
from otm.errors import CertificateError


@dataclass(frozen=True, eq=False)
class BlockCertificate(FactsRepr):
    """Proof of how many drafts a lossless rule can accept on average: lower ≤ optimum ≤ upper.

    Multipliers of antichains prove the upper end, and a feasible S the lower one (Theorem 13.5 of
    docs/theory/block.md).  Of a tree in fractions the gap is zero.

    Attributes
    ----------
    document : dict
        The certificate in JSON, whose fields docs/theory/block.md describes.

    Examples
    --------
    >>> from fractions import Fraction as F
    >>> from otm import solve_block
    >>> proof = solve_block(lambda path: [F(2, 3), F(1, 3)], lambda path: [F(1, 3), F(2, 3)], 2, 2)
    >>> proof.certificate.check()  # returns nothing: the proof holds
    >>> proof.certificate.lower, proof.certificate.upper
    (Fraction(131, 81), Fraction(131, 81))
    """

    document: dict[str, Any] = field(repr=False)

    @property
    def _title(self) -> str:
        return "Certificate of the optimum of block verification"

    def _lines(self) -> list[tuple[str, str]]:
        return [
            ("lower", number_text(self.lower)),
            ("upper", number_text(self.upper)),
            ("gap", f"{float(self.gap):.0g}"),
        ]

    @property
    def lower(self) -> Fraction:
        """What S accepts."""
        return self._end("lower")

    @property
    def upper(self) -> Fraction:
        """Upper bound on the mean accepted drafts of any memoryless lossless rule."""
        return self._end("upper")

    @property
    def gap(self) -> Fraction:
        """Width upper − lower of what is proved; 0 proves optimality."""
        return self.upper - self.lower

    def _end(self, name: str) -> Fraction:
        try:
            return Fraction(*certificate.number(self.document[name], name))
        except (CertificateRefusedError, LookupError, TypeError) as error:
            raise CertificateError(f"the certificate has no valid {name} end: {error}") from error

    def check(self) -> None:
        """Check the proof in fractions; return nothing if it holds.

        Raises
        ------
        CertificateError
            If the certificate does not prove lower ≤ optimum ≤ upper.
        """
        certificate_json.check(self.document, certificate.check)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the certificate as JSON, for `load` and for `otm/block_optimum/certificate.py`.

        Parameters
        ----------
        path : str or Path
            File to write, over what is there.
        """
        text = json.dumps(self.document, allow_nan=False)
        Path(path).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> BlockCertificate:
        """Read and check a certificate.

        Parameters
        ----------
        path : str or Path
            File that `save` wrote, or another program in the same schema.

        Returns
        -------
        BlockCertificate
            A checked one.

        Raises
        ------
        CertificateError
            If the file is no certificate or proves less than it claims.  A file that cannot be read
            raises what `pathlib.Path.read_text` does.
        """
        return cls(certificate_json.read(path, certificate.check))


def prove(
    tree: Tree, drafts: PathDrafts | TreeDrafts, bounds: Bounds, method: str
) -> tuple[BlockCertificate, list[Number]]:
    """Make a certificate of bounds, and return it with the S that it holds.

    In floats S gives up a few units in the last place, or as much as makes it feasible in
    fractions.
    """
    trees = None
    if isinstance(drafts, TreeDrafts):
        pairs = zip(drafts.members, drafts.chances, strict=True)
        trees = [[members, _written(chance)] for members, chance in pairs]
    rows = zip(tree.parents, tree.paths, tree.drafts, tree.targets, tree.levels, strict=True)
    multipliers = [[list(U), _written(price)] for U, price in bounds.prices.items()]
    document: dict[str, Any] = {
        "schema": certificate.SCHEMA,
        "k": None if trees is not None else drafts.k,  # type: ignore[union-attr]
        "nodes": [
            [parent, path[-1], None if trees is not None else _written(p), _written(q), levels]
            for parent, path, p, q, levels in list(rows)[1:]
        ],
        "trees": trees,
        "accepted": [],
        "multipliers": multipliers,
        "flow": None,
    }
    checked = certificate.CheckedTree(document, Work(math.inf))
    passed = _feasible(checked, tree, drafts, bounds.passed)
    lower = sum((as_fraction(x) for x in passed[1:]), Fraction(0))
    upper = Fraction(*checked.upper(exact=tree.exact))
    if not tree.exact:
        upper = Fraction(rounded(upper, math.inf))
    document |= certificate_json.ends(lower, upper, method)
    document["sha256"] = digest(document)
    return BlockCertificate(document), passed


def _feasible(
    checked: certificate.CheckedTree,
    tree: Tree,
    drafts: PathDrafts | TreeDrafts,
    passed: Sequence[Number],
) -> list[Number]:
    """Put the largest S up to `passed` that is feasible in fractions into the document."""
    document = checked.document
    wanted = [0 * x if levels else x for x, levels in zip(passed, tree.levels, strict=True)]
    if isinstance(drafts, TreeDrafts):
        return _served(document, tree, drafts, wanted)
    if tree.exact:
        document["accepted"] = [_written(x) for x in wanted[1:]]
        return wanted
    # a rounding error can be more than all that drafts give a rare node
    reach = np.array(tree.reach, dtype=np.float64)
    given = np.where(reach > RAREST, at_least_once(reach, drafts.k), 0.0).tolist()
    wanted = [min(x, most) for x, most in zip(wanted, given, strict=True)]
    shrink = 2.0**-50
    while True:
        largest: list[Number] = [1.0]
        for y in range(1, len(wanted)):  # rounded down: the float below a product is below it
            edge = math.nextafter(float(largest[tree.parents[y]] * tree.targets[y]), 0)
            largest.append(max(min(edge, float(wanted[y] * (1 - shrink))), 0.0))
        document["accepted"] = [_written(x) for x in largest[1:]]
        try:
            checked.lower()
        except CertificateRefusedError:
            shrink = min(8 * shrink, 1.0)  # S = 0 is feasible
        else:
            return largest


def _served(
    document: dict[str, Any], tree: Tree, drafts: TreeDrafts, wanted: Sequence[Number]
) -> list[Number]:
    """Largest S in fractions that flows from drafted trees, with the flow."""
    in_fractions = Tree(
        tree.paths,
        tree.parents,
        [as_fraction(x) for x in tree.drafts],
        [as_fraction(x) for x in tree.targets],
        tree.levels,
    )
    passed: Sequence[Number] = in_fractions.largest([as_fraction(x) for x in wanted])
    reachable = (
        TreeDrafts(in_fractions, [as_fraction(x) for x in drafts.chances], drafts.members)
        .excess(list(passed))
        .reachable
    )
    feasible = in_fractions.largest([min(x, y) for x, y in zip(passed, reachable, strict=True)])
    flow = maximum_flow(drafts.chances, drafts.members, ending(tree, feasible))
    document["flow"] = [
        [i, y, certificate_json.fraction(share)]
        for i, shares in enumerate(flow.shares)
        for y, share in shares.items()
    ]
    document["accepted"] = [_written(x) for x in feasible[1:]]
    return feasible


def _written(value: Number) -> Any:
    if isinstance(value, Fraction):
        return certificate_json.fraction(value)
    return float(value).hex()
