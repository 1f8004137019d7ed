"""Drafts as a tree, each with the distribution of its children.

A node is a token after the tokens above it.  K chains are a tree that branches at its root alone
(SpecTr, section 7); a prefix tree branches at every level (SpecTr, Algorithm 4); one chain is what
Leviathan's Algorithm 1 drafts.  Children are kept as they were drawn: a token that was drawn twice
has two nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import otm.drafts
from otm._core.display.reprs import Brief
from otm._core.probs.sparse import SparseProbs
from otm.decoding.reading import Path
from otm.errors import InvalidDraftsError

Randomness = Callable[[int], npt.NDArray[Any]]
"""m independent uniforms in [0, 1) for a number m: `numpy.random.Generator.random` is one."""


@dataclass(eq=False)
class DraftNode(Brief):
    """A draft token, below the tokens that come before it.

    Attributes
    ----------
    path : tuple of int
        The draft tokens from the root's child down to this one; empty at the root, which stands
        for the last token that is known.
    draft_probs : SparseProbs or None
        The distribution that the children were drawn from; None if there are none, or if they are
        certain ("Top").
    children : list of DraftNode
        One for each draw, in the order of the draws.
    draft_kind : str
        How the children were drawn together: a class of `otm.drafts`, "IID" for independently.
        Each verifier is lossless for one kind alone, except `verify_target_only`, which takes any
        tree.

    Examples
    --------
    >>> import numpy as np
    >>> root = DraftNode()
    >>> root.draw_children(SparseProbs([3, 7], [0.5, 0.5]), 2, lambda m: np.array([0.2, 0.7]))
    >>> [child.path for child in root.children], root.children[0].token
    ([(3,), (7,)], 3)
    """

    path: Path = ()
    draft_probs: SparseProbs | None = None
    children: list[DraftNode] = field(default_factory=list)
    draft_kind: str = "IID"

    @property
    def token(self) -> int:
        """The draft token itself; the root has none."""
        return self.path[-1]

    def checked_draft_probs(self, draft_kind: str = "IID") -> SparseProbs:
        """Return the distribution of the children, after checking that it can give them.

        Parameters
        ----------
        draft_kind : str, optional
            How the children must have been drawn, if there are several.

        Raises
        ------
        InvalidDraftsError
            If the children were drawn in another way, or the node has no distribution, or a child
            that it cannot give or whose path does not continue the node's.
        """
        if self.draft_kind != draft_kind and (len(self.children) > 1 or self.draft_kind == "Top"):
            raise InvalidDraftsError(
                f"the drafts after {self.path} are {self.draft_kind} drafts, and this rule is "
                f"lossless for {draft_kind} drafts alone; choose a rule for {self.draft_kind} "
                f"drafts, or draft otherwise (`ModelDrafter(…, draft_kind={draft_kind!r})`)"
            )
        if not isinstance(self.draft_probs, SparseProbs):
            raise InvalidDraftsError(
                f"the drafts after {self.path} come with a {type(self.draft_probs).__name__} as "
                "the distribution that they were drawn from; without it only target-only sampling "
                'and coupled decoding are lossless: take `rule="target-only"` or `decode_coupled`, '
                "or give a SparseProbs as `draft_probs` beside `children`"
            )
        for child in self.children:
            if child.path[:-1] != self.path or not self.draft_probs.of(child.token) > 0:
                raise InvalidDraftsError(
                    f"draft {child.path} after {self.path}; a draft must lengthen the path by a "
                    "token that the distribution it was drawn from can give"
                )
        return self.draft_probs

    def merged_children(self) -> list[DraftNode]:
        """List the children, of which the first with a token takes what grew below all of these.

        What is below a node is drawn independently of its being drawn again beside it, so that it
        may as well have been drawn below the first.
        """
        first: dict[int, DraftNode] = {}
        children = []
        for child in self.children:
            node = DraftNode(child.path)
            kept = first.setdefault(child.token, node)
            if child.children:
                kept.draft_probs, kept.draft_kind = child.draft_probs, child.draft_kind
                kept.children += child.children
            children.append(node)
        return children

    def nodes(self) -> Iterator[DraftNode]:
        """Go through the tree, from this node down, parents before their children."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))

    def leaf_paths(self) -> list[Path]:
        """List the different paths that no other one continues."""
        paths = dict.fromkeys(node.path for node in self.nodes())
        continued = {path[:-1] for path in paths if path}
        return [path for path in paths if path not in continued]

    def drawn_paths(self) -> list[Path]:
        """List the paths to the last drafts, as often as each was drawn."""
        return [node.path for node in self.nodes() if node.path and not node.children]

    def draw_children(
        self,
        draft_probs: SparseProbs,
        count: int,
        uniforms: Randomness,
        draft_kind: str = "IID",
    ) -> None:
        """Draw children from a distribution, with a uniform each if they are independent.

        Parameters
        ----------
        draft_probs : SparseProbs
            The distribution of a child.
        count : int
            How many to draw.
        uniforms : Randomness
            Source of independent uniforms in [0, 1).
        draft_kind : str, optional
            How they are drawn together: "IID", "WithoutReplacement", "Greedy" or "Top"; but for
            "IID" there are at most as many as the distribution has tokens.
        """
        self.draft_probs = draft_probs if draft_kind != "Top" else None
        self.draft_kind = draft_kind
        if draft_kind == "IID":
            tokens = draft_probs.draw(uniforms(count))
        else:
            kind: Any = getattr(otm.drafts, draft_kind)
            drafts = kind(draft_probs.probabilities, count, tokens=draft_probs.tokens)
            tokens = drafts.draw(uniforms(drafts.uniforms_per_draw))
        self.children = [DraftNode((*self.path, token)) for token in tokens.tolist()]


def one_chain(node: DraftNode, why: str) -> list[DraftNode]:
    """List a node and all below it, which must be one chain; `why` ends the refusal of others."""
    nodes = [node]
    while children := nodes[-1].children:
        if len(children) > 1:
            raise InvalidDraftsError(f"{len(children)} drafts after {nodes[-1].path}; {why}")
        nodes.append(children[0])
    return nodes


def shared_draft_probs(nodes: Sequence[DraftNode], draft_kind: str = "IID") -> SparseProbs:
    """Return the draft distribution of nodes with one path; raise if they do not share one."""
    probs = nodes[0].checked_draft_probs(draft_kind)
    for node in nodes[1:]:
        other = node.checked_draft_probs("IID")
        same = other is probs or (
            np.array_equal(other.tokens, probs.tokens)
            and np.array_equal(other.probabilities, probs.probabilities)
        )
        if not same or len(node.children) != len(nodes[0].children):
            raise InvalidDraftsError(
                f"two nodes of the path {node.path} have different distributions, or different "
                "numbers of children; both must follow from the path, or their drafts are not "
                "i.i.d."
            )
    return probs


def extend(end: DraftNode, probs: SparseProbs, token: int) -> DraftNode:
    """Put a draft behind the last one of a chain."""
    end.draft_probs = probs
    end.children = [DraftNode((*end.path, token))]
    return end.children[0]
