"""Build, save, load and check certificates of the optimum of block verification.

`otm.block_optimum.certificate` describes the proof, and checks it with the standard library only.
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
from otm.block_optimum.table import TreeDrafts, ending_probs, maximum_flow
from otm.block_optimum.tree import RAREST, Tree
from otm.certificate import CertificateRefusedError, Work, digest
from otm.errors import CertificateError


@dataclass(frozen=True, eq=False)
class BlockCertificate(FactsRepr):
    """Proof that lower ≤ optimum ≤ upper, for the expected number of accepted drafts.

    The optimum is the maximum over all memoryless lossless rules.  Multipliers of antichains prove
    the upper bound, and a feasible S proves the lower bound (Theorem 13.5 of
    docs/theory/block.md).  The gap is zero if all probabilities are fractions and no tokens were
    omitted.

    Attributes
    ----------
    document : dict
        The certificate as a JSON object; docs/theory/block.md describes its fields.

    Examples
    --------
    >>> from fractions import Fraction as F
    >>> from otm import solve_block
    >>> proof = solve_block(lambda path: [F(2, 3), F(1, 3)], lambda path: [F(1, 3), F(2, 3)], 2, 2)
    >>> proof.certificate.check()  # The proof is valid: no error is raised.
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
        """Expected number of drafts that the feasible S accepts."""
        return self._end("lower")

    @property
    def upper(self) -> Fraction:
        """Upper bound on the expected accepted drafts of every memoryless lossless rule."""
        return self._end("upper")

    @property
    def gap(self) -> Fraction:
        """The difference upper − lower; a gap of 0 proves that the optimum is exact."""
        return self.upper - self.lower

    def _end(self, name: str) -> Fraction:
        try:
            return Fraction(*certificate.number(self.document[name], name))
        except (CertificateRefusedError, LookupError, TypeError) as error:
            raise CertificateError(f"the certificate has no valid {name} bound: {error}") from error

    def check(self) -> None:
        """Check the proof in exact arithmetic; return None if the proof is valid.

        Raises
        ------
        CertificateError
            If the certificate does not prove lower ≤ optimum ≤ upper.
        """
        certificate_json.check(self.document, certificate.check)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the certificate to a JSON file.

        `load` reads this file, and `otm/block_optimum/certificate.py` checks it.

        Parameters
        ----------
        path : str or Path
            File to write; an existing file is overwritten.
        """
        text = json.dumps(self.document, allow_nan=False)
        Path(path).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> BlockCertificate:
        """Read and check a certificate.

        Parameters
        ----------
        path : str or Path
            File that `save` or another program wrote in the same schema.

        Returns
        -------
        BlockCertificate
            The certificate, after its proof has been checked.

        Raises
        ------
        CertificateError
            If the file is not a certificate, or does not prove its claim.
        OSError
            If the file cannot be read.
        """
        return cls(certificate_json.read(path, certificate.check))


def build_certificate(
    tree: Tree, drafts: PathDrafts | TreeDrafts, bounds: Bounds, method: str
) -> tuple[BlockCertificate, list[Number]]:
    """Build a certificate from bounds; return the certificate and its S.

    If S is in floats, it is first decreased by a few units in the last place, or until it is
    feasible in exact arithmetic.
    """
    trees = None
    if isinstance(drafts, TreeDrafts):
        pairs = zip(drafts.members, drafts.chances, strict=True)
        trees = [[members, _encoded(chance)] for members, chance in pairs]
    rows = zip(tree.parents, tree.paths, tree.drafts, tree.targets, tree.levels, strict=True)
    multipliers = [[list(U), _encoded(price)] for U, price in bounds.prices.items()]
    document: dict[str, Any] = {
        "schema": certificate.SCHEMA,
        "k": None if trees is not None else drafts.k,  # type: ignore[union-attr]
        "nodes": [
            [parent, path[-1], None if trees is not None else _encoded(p), _encoded(q), levels]
            for parent, path, p, q, levels in list(rows)[1:]
        ],
        "trees": trees,
        "accepted": [],
        "multipliers": multipliers,
        "flow": None,
    }
    checked = certificate.CheckedTree(document, Work(math.inf))
    accept_probs = _write_feasible(checked, tree, drafts, bounds.accept_probs)
    lower = sum((as_fraction(x) for x in accept_probs[1:]), Fraction(0))
    upper = Fraction(*checked.upper(exact=tree.exact))
    if not tree.exact:
        upper = Fraction(rounded(upper, math.inf))
    document |= certificate_json.ends(lower, upper, method)
    document["sha256"] = digest(document)
    return BlockCertificate(document), accept_probs


def _write_feasible(
    checked: certificate.CheckedTree,
    tree: Tree,
    drafts: PathDrafts | TreeDrafts,
    accept_probs: Sequence[Number],
) -> list[Number]:
    """Write the largest feasible S below `accept_probs` into the document, and return this S."""
    document = checked.document
    desired = [0 * x if levels else x for x, levels in zip(accept_probs, tree.levels, strict=True)]
    if isinstance(drafts, TreeDrafts):
        return _write_feasible_flow(document, tree, drafts, desired)
    if tree.exact:
        document["accepted"] = [_encoded(x) for x in desired[1:]]
        return desired
    # A rounding error can exceed the probability that any draft passes through a rare node.
    reach = np.array(tree.reach, dtype=np.float64)
    hits = np.where(reach > RAREST, at_least_once(reach, drafts.k), 0.0).tolist()
    desired = [min(x, most) for x, most in zip(desired, hits, strict=True)]
    shrink = 2.0**-50
    while True:
        largest: list[Number] = [1.0]
        for y in range(1, len(desired)):
            # The float before the rounded product is at most the exact product.
            edge = math.nextafter(float(largest[tree.parents[y]] * tree.targets[y]), 0)
            largest.append(max(min(edge, float(desired[y] * (1 - shrink))), 0.0))
        document["accepted"] = [_encoded(x) for x in largest[1:]]
        try:
            checked.lower()
        except CertificateRefusedError:
            # The loop ends at the latest with shrink = 1, since S = 0 is feasible.
            shrink = min(8 * shrink, 1.0)
        else:
            return largest


def _write_feasible_flow(
    document: dict[str, Any], tree: Tree, drafts: TreeDrafts, desired: Sequence[Number]
) -> list[Number]:
    """Return the largest S in fractions that a flow from draft trees attains.

    The flow and S are written into the document.
    """
    in_fractions = Tree(
        tree.paths,
        tree.parents,
        [as_fraction(x) for x in tree.drafts],
        [as_fraction(x) for x in tree.targets],
        tree.levels,
    )
    accept_probs: Sequence[Number] = in_fractions.largest_below([as_fraction(x) for x in desired])
    reachable = (
        TreeDrafts(in_fractions, [as_fraction(x) for x in drafts.chances], drafts.members)
        .excess(list(accept_probs))
        .reachable
    )
    feasible = in_fractions.largest_below(
        [min(x, y) for x, y in zip(accept_probs, reachable, strict=True)]
    )
    flow = maximum_flow(drafts.chances, drafts.members, ending_probs(tree, feasible))
    document["flow"] = [
        [i, y, certificate_json.fraction(share)]
        for i, shares in enumerate(flow.shares)
        for y, share in shares.items()
    ]
    document["accepted"] = [_encoded(x) for x in feasible[1:]]
    return feasible


def _encoded(value: Number) -> Any:
    if isinstance(value, Fraction):
        return certificate_json.fraction(value)
    return float(value).hex()
