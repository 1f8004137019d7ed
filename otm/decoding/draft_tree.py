"""Draft trees; each node knows the distribution of its children.

A node stands for one draft token, and its ancestors are the draft tokens before this token.
K chains are a tree that branches only at its root (SpecTr, section 7).  A prefix tree branches at
every level (SpecTr, Algorithm 4).  Leviathan's Algorithm 1 drafts one chain.  Children keep the
order in which they were drawn; a token that was drawn twice has two nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import otm.drafts
from otm._core.display.reprs import ShortRepr
from otm._core.probs.sparse import SparseProbs
from otm.decoding.reading import Path
from otm.errors import InvalidDraftsError

Randomness = Callable[[int], npt.NDArray[Any]]
"""Function of m that returns m independent uniforms in [0, 1), such as NumPy's `rng.random`."""


@dataclass(eq=False)
class DraftNode(ShortRepr):
    """A node of a draft tree: a draft token and its children.

    Attributes
    ----------
    path : tuple of int
        Draft tokens from the root's child down to this node; empty at the root, which stands for
        the last token of the context.
    draft_probs : SparseProbs or None
        The distribution that the children were drawn from.  None if the node has no children, or
        if the children are deterministic (kind "Top").
    children : list of DraftNode
        One child for each draw, in the order of the draws.
    draft_kind : str
        Joint distribution of the children: the name of a class of `otm.drafts`; "IID" means
        independent draws.  Each verifier is lossless for one kind only, except
        `verify_target_only`, which accepts any tree, and `verify_walk_and_keep`, which accepts
        "IID", "Top" and "Greedy".

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
        """The draft token of this node; the root has none."""
        return self.path[-1]

    def checked_draft_probs(self, draft_kind: str = "IID") -> SparseProbs:
        """Return the distribution of the children, after checking that it can produce them.

        Parameters
        ----------
        draft_kind : str, optional
            Kind of draft sampling that is required if the node has several children.

        Raises
        ------
        InvalidDraftsError
            If the children are of another kind, the node has no distribution, a child has
            probability zero, or the path of a child does not continue the path of the node.
        """
        if self.draft_kind != draft_kind and (len(self.children) > 1 or self.draft_kind == "Top"):
            raise InvalidDraftsError(
                f"the drafts after {self.path} are {self.draft_kind} drafts, and this rule is "
                f"lossless for {draft_kind} drafts only; choose a rule for {self.draft_kind} "
                f"drafts, or another kind of drafts (`ModelDrafter(…, draft_kind={draft_kind!r})`)"
            )
        if not isinstance(self.draft_probs, SparseProbs):
            raise InvalidDraftsError(
                f"the drafts after {self.path} have a {type(self.draft_probs).__name__} as "
                "`draft_probs`; without a SparseProbs only target-only sampling and coupled "
                'decoding are lossless: use `rule="target-only"` or `decode_coupled`, or set '
                "`draft_probs` of the node to a SparseProbs"
            )
        for child in self.children:
            if child.path[:-1] != self.path or not self.draft_probs.of(child.token) > 0:
                raise InvalidDraftsError(
                    f"draft {child.path} after {self.path}; a draft must extend the path by one "
                    "token that has positive probability under `draft_probs`"
                )
        return self.draft_probs

    def merged_children(self) -> list[DraftNode]:
        """Return the children; the first child with a token gets the subtrees of its duplicates.

        The draws below a node are independent of duplicates of the node, so a subtree may move to
        the first child with the same token.
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
        """Yield the nodes of the subtree of this node, parents before their children."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))

    def leaf_paths(self) -> list[Path]:
        """Return the distinct paths that no other path in the tree extends."""
        paths = dict.fromkeys(node.path for node in self.nodes())
        continued = {path[:-1] for path in paths if path}
        return [path for path in paths if path not in continued]

    def repeated_leaf_paths(self) -> list[Path]:
        """Return the path of each leaf; a path that was drawn twice appears twice."""
        return [node.path for node in self.nodes() if node.path and not node.children]

    def draw_children(
        self,
        draft_probs: SparseProbs,
        count: int,
        uniforms: Randomness,
        draft_kind: str = "IID",
    ) -> None:
        """Draw the children of this node from a distribution.

        Parameters
        ----------
        draft_probs : SparseProbs
            The distribution of one child.
        count : int
            Number of children.
        uniforms : Randomness
            Source of independent uniforms in [0, 1); independent draws use one uniform per child.
        draft_kind : str, optional
            Joint distribution of the children: "IID", "WithoutReplacement", "Greedy" or "Top".
            For kinds other than "IID", `count` is at most the number of tokens of the distribution.
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
    """Return the nodes from `node` down; raise unless they are a chain.

    `why` is the end of the error message.
    """
    nodes = [node]
    while children := nodes[-1].children:
        if len(children) > 1:
            raise InvalidDraftsError(f"{len(children)} drafts after {nodes[-1].path}; {why}")
        nodes.append(children[0])
    return nodes


def shared_draft_probs(nodes: Sequence[DraftNode], draft_kind: str = "IID") -> SparseProbs:
    """Return the draft distribution that nodes with the same path share; raise if it differs."""
    probs = nodes[0].checked_draft_probs(draft_kind)
    for node in nodes[1:]:
        other = node.checked_draft_probs("IID")
        same = other is probs or (
            np.array_equal(other.tokens, probs.tokens)
            and np.array_equal(other.probabilities, probs.probabilities)
        )
        if not same or len(node.children) != len(nodes[0].children):
            raise InvalidDraftsError(
                f"two nodes with the path {node.path} have different distributions, or different "
                "numbers of children; distribution and number must depend on the path only, or the "
                "drafts are not i.i.d."
            )
    return probs


def extend(end: DraftNode, probs: SparseProbs, token: int) -> DraftNode:
    """Append a draft token to the last node of a chain, and return the new node."""
    end.draft_probs = probs
    end.children = [DraftNode((*end.path, token))]
    return end.children[0]
