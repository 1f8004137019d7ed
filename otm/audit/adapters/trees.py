"""Adapter of functions that verify a draft tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from otm.audit.adapters.base import Instance
from otm.audit.adapters.drafts import as_tokens, models_for
from otm.audit.adapters.functions import FunctionAdapter, parameters_of
from otm.audit.adapters.tree_drafts import Nodes, TreeDrafts
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path


class tree(FunctionAdapter):
    """Audit a verifier f(target_probs, draft_probs, tokens, parents, uniforms) of a draft tree.

    Parameters
    ----------
    function : callable
        Function of target probabilities [N + 1, V], draft probabilities [N + 1, V], the tokens [N]
        and parents [N] of the nodes, and uniforms [N + 2].  The target probabilities are those
        after the root and after each node; the draft probabilities determine the children of the
        root and of each node.  The parent is −1 for children of the root; parents come before
        children, and siblings are in drawing order.  The function returns the accepted drafts and
        one more token, as for `chain`; its randomness may be another parameter, as for `chain`.  A
        parameter `counts`, if the function has it, is the number of draws that gave each node [N].
        A parameter `sampled` is whether each node was drawn, and not chosen with certainty [N].
    drafts : str, optional
        How children are chosen: "independent" (the default; a token drawn twice has two nodes),
        "merged" (the same, with one node for each token), "without replacement" (in the order of
        Gumbel top-k), "top-k" (the most probable tokens), "dynamic" (the k γ most probable paths,
        as in EAGLE-2) or "certain and drawn" (all children but the last are the most probable
        tokens, and the last is drawn from the other tokens; below a drawn node no child is drawn).
    branching : tuple of int, optional
        Number of children at each level, such as (2, 1); by default the audit chooses it.
    **options
        As for `chain`; `uniforms` is a function of the number N of nodes.

    Raises
    ------
    InvalidParameterError, InvalidDraftCountError
        If the function has other parameters, or they cannot be read, or the branching is not a
        tuple of numbers of children.
    ProblemTooLargeError
        If the branching makes a tree with too many nodes.
    UnknownMethodError
        If the way to draft is unknown.
    MissingDependencyError
        If the function has a parameter `generator`, and torch is not installed.

    Examples
    --------
    >>> from otm.audit import lossless
    >>> def first_path(target_probs, draft_probs, tokens, parents, uniforms):
    ...     return [tokens[0], 0]
    >>> print(lossless(tree(first_path, drafts="top-k"), examples=0).counterexample.drafts)
    {'tokens': (0,), 'parents': (-1,)}
    """

    before = 4
    beyond = 2
    several = True

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        drafts: str = "independent",
        branching: tuple[int, ...] | None = None,
        **options: Any,
    ) -> None:
        self.drawing = TreeDrafts.checked(drafts, branching)
        parameters = parameters_of(function)
        self.counts, self.sampled = "counts" in parameters, "sampled" in parameters
        self.before = 4 + self.counts + self.sampled
        super().__init__(function, **options)
        self.more: tuple[Instance, ...] = self.drawing.more

    def supports(self, instance: Instance) -> bool:
        """Return whether the instance is as deep and as wide as a stated branching."""
        return self.drawing.supports(instance)

    def drafted(self, instance: Instance, source: Randomness) -> dict[str, Path]:
        """Draw the same drafts as `output`."""
        nodes = self.drawing.draw(instance, source)
        return nodes.shown() | {name: tuple(values) for name, values in self._marks(nodes).items()}

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draw drafts, then verify them."""
        nodes = self.drawing.draw(instance, source)
        contexts = [instance.prompt + path for path in ((), *nodes.paths)]
        models = models_for(instance, source)
        rows = (np.array([model.probs(context) for context in contexts]) for model in models)
        tokens = np.array([path[-1] for path in nodes.paths])
        arrays = (*rows, tokens, np.array(nodes.parents))
        marks = self._marks(nodes)
        more = {name: self.convert(np.array(values)) for name, values in marks.items()}
        return as_tokens(self._ask(source, tokens.size, *arrays, **more))

    def _marks(self, nodes: Nodes) -> dict[str, list[Any]]:
        """Return the further properties of the nodes that the function has as parameters."""
        counts = {"counts": nodes.counts} if self.counts else {}
        return counts | ({"sampled": nodes.sampled} if self.sampled else {})
