"""The drafts of a `generate` call: from a model, from a drafter, or from a function of the target.

The rule decides how a model drafts: the number of chains, and the kind of draft sampling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from otm._core.display.text import shown
from otm._core.numbers import as_positive
from otm.coupled.rounds import RULE as LIST_COUPLING
from otm.coupled.rounds import CoupledVerifier
from otm.coupling.build import PlanBuilder
from otm.decoding.checks import check_draft
from otm.decoding.drafters.base import Branching, Drafter, as_branching, max_children
from otm.decoding.drafters.drawn_trees import DrawnTreeDrafter
from otm.decoding.drafters.prompt_lookup import PromptLookup
from otm.decoding.drafters.trees import BestFirstDrafter, as_nodes
from otm.decoding.generate import CHAINS, as_drafter
from otm.decoding.reading import LogitsProcessor
from otm.decoding.rounds import RoundsVerifier
from otm.decoding.sampling_parameters import SamplingParameters, ranking_parameters
from otm.decoding.verifiers.by_rule import RuleVerifier, chain_rule, tree_verifier
from otm.errors import InvalidParameterError
from otm.integrations.huggingface.vocabularies import OtherVocabulary
from otm.models.base import LanguageModel
from otm.models.huggingface.model import HuggingFaceModel, check_loaded, check_same_vocabulary
from otm.rules import names

LOOKUP = "prompt_lookup_num_tokens"
"""Generation parameter for the number of tokens that a step copies from the context."""

OF_TREES = ("target-only", "walk and keep", "branch and keep")
"""Rules that verify a best-first tree; with all but the first, a node may draw a child."""

MATCH = 2
"""Longest match of prompt lookup in transformers, unless `max_matching_ngram_size` is set."""


@dataclass(frozen=True)
class Drafting:
    """How the calls of an `AssistedDecoding` draft."""

    # A model of transformers, a LanguageModel, a Drafter, or a function of the target.
    assistant: Any
    verifier: RoundsVerifier
    # Joint distribution of the children of a node.
    draft_kind: str
    # Number of chains, or numbers of children; None for the default number of chains.
    k: Branching | None
    chains: int
    # Draft budget of a best-first tree, None for chains and prefix trees; may its nodes draw?
    nodes: int | None
    draws: bool
    # How an assistant with another tokenizer drafts.
    other: OtherVocabulary | None

    @classmethod
    def of(
        cls,
        assistant: Any,
        rule: str | PlanBuilder | None,
        k: Branching | None,
        nodes: int | None,
        other: OtherVocabulary | None,
    ) -> Drafting:
        """Check the arguments, and choose the verifier and the kind of drafts of a rule."""
        k = None if k is None else as_branching(k)
        nodes = None if nodes is None else as_nodes(nodes)
        if nodes is not None and rule not in (None, *OF_TREES):
            raise InvalidParameterError(
                f"nodes = {nodes} with the rule {shown(rule)}; a best-first tree needs the rule "
                f"{' or '.join(map(repr, OF_TREES))}"
            )
        if nodes is not None and k is not None:
            raise InvalidParameterError(
                f"k = {k} with nodes = {nodes}; a best-first tree has no chains: omit one of both"
            )
        verifier: RoundsVerifier
        by_text = other is not None and other.by_text
        chains, draft_kind = 1 if by_text else CHAINS, "IID"
        if rule == LIST_COUPLING:
            verifier = CoupledVerifier(max_children(CHAINS if k is None else k))
        else:
            for_one = k in (None, 1) and rule in names("verifier", several=False)
            of_rule = RuleVerifier(chain_rule(rule)) if for_one else tree_verifier(rule)
            verifier, draft_kind = of_rule, of_rule.rule.drafts
            chains = 1 if for_one else chains
        draws = rule != OF_TREES[0]
        drafting = cls(assistant, verifier, draft_kind, k, chains, nodes, draws, other)
        if isinstance(assistant, Drafter):
            drafting.check_drafter(assistant)
        elif not isinstance(assistant, LanguageModel) and not _is_function(assistant):
            others = ", or a LanguageModel or Drafter of OTM, or a function from the target to one"
            check_loaded(assistant, "assistant", others)
        return drafting

    def drafter(
        self,
        target: HuggingFaceModel,
        sampling: SamplingParameters,
        processor: LogitsProcessor | None,
        **of_assistant: Any,
    ) -> Drafter:
        """Return the drafter of a call; a model drafts with the call's sampling and processor.

        `of_assistant` are parameters of `HuggingFaceModel` for a model of transformers.
        """
        draft = self.assistant
        options: Any = {"sampling": sampling, "logits_processor": processor}
        if _is_function(draft):
            draft = draft(target)
            check_draft(draft, LanguageModel, Drafter)
        elif not isinstance(draft, LanguageModel | Drafter):
            draft = HuggingFaceModel(draft, **of_assistant)
            if self.other is None:
                check_same_vocabulary(target, draft)
        if isinstance(draft, Drafter):
            self.check_drafter(draft)
            return draft
        if self.other is not None:
            draft = self.other.drafter(draft, target.vocabulary, sampling)
        if self.nodes is not None and self.draws and sampling.temperature > 0:
            return DrawnTreeDrafter(draft, self.nodes, **options)
        if self.nodes is not None:
            ranking = ranking_parameters(sampling)
            return BestFirstDrafter(draft, self.nodes, None, ranking, processor)
        k = self.k if isinstance(draft, LanguageModel) else None
        return as_drafter(draft, self.chains, None, options, k=k, draft_kind=self.draft_kind)

    def check_drafter(self, drafter: Drafter) -> None:
        """Raise if a parameter is set that only the drafts of models have."""
        lists = isinstance(self.verifier, CoupledVerifier)
        of_models = {"k": None if lists else self.k, "nodes": self.nodes, "tokenizers": self.other}
        for name, value in of_models.items():
            if value is not None:
                raise InvalidParameterError(
                    f"`{name}` has no effect on a {type(drafter).__name__}; remove it, and set the "
                    "shape of the drafts when you create the drafter"
                )


def prompt_lookup(setting: Callable[[str], Any]) -> tuple[PromptLookup, int] | None:
    """Return drafter and γ of a call with `prompt_lookup_num_tokens`; None for other calls."""
    if (count := setting(LOOKUP)) is None:
        return None
    longest = setting("max_matching_ngram_size")
    longest = MATCH if longest is None else as_positive(longest, "max_matching_ngram_size")
    return PromptLookup(longest), as_positive(count, LOOKUP)


def _is_function(assistant: Any) -> bool:
    """Return whether drafts come from a function of the target; models are callable, too."""
    known = isinstance(assistant, LanguageModel | Drafter) or hasattr(assistant, "config")
    return callable(assistant) and not known
