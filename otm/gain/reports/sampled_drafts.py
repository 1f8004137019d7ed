"""Tokens per step of rules that verify whole paths and of trees, from sampled drafts.

A recorded text has the distributions along one path. Rules that verify whole paths need both
models' distributions along their drafts, so the report samples drafts from the models. The drafts
begin at contexts where steps begin: the report follows one chain of γ drafts along the text. Given
the text, chain verification accepts the token y of a position with probability min(1, p(y)/q(y)),
independently of the other positions. So one uniform for each position decides where steps begin.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.display.progress import Progress
from otm._core.means import Floats, PairedMeans, Setup
from otm.decoding.drafters.model import ModelDrafter
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain.efficiency import block_efficiency
from otm.gain.recording import prompts_of_batch, recording_bytes, tree_bytes
from otm.gain.reports.blocks import load_part, save_part
from otm.gain.reports.draft_sampler import SEED, DraftSampler
from otm.gain.reports.model_pair import ModelPair
from otm.gain.reports.pairs import Measured
from otm.gain.reports.sampled_trees import tokens_of_trees, tree_setups
from otm.gain.reports.score_files import Source
from otm.gain.reports.settings import Settings
from otm.models.huggingface.model import HuggingFaceModel

BOUND = "bound"
"""Name that `block_efficiency` gives to the upper bound."""


def check_drafts(source: Source, settings: Settings) -> None:
    """Raise if path rules or trees have no models, or answers were sampled in another way."""
    if isinstance(source, ModelPair):
        if source.answers not in (None, settings.sampling):
            raise InvalidParameterError(
                f"the target sampled its answers with {source.answers}, and the report assumes "
                f"{settings.sampling}; give `from_models` and `Settings` the same `sampling`"
            )
    elif settings.path_rules or settings.nodes:
        trees = ["trees (`nodes`, --nodes)"] if settings.nodes else []
        raise InvalidParameterError(
            f"{' and '.join([*settings.path_rules, *trees])} need drafts, which a report samples "
            "from two models that read a text (`from_models`, --text); omit them for other sources"
        )


def sample_drafts(
    source: Source,
    measured: Measured,
    settings: Settings,
    gammas: Sequence[int],
    folder: Path,
    *,
    level: float = 0.95,
    progress: Progress | None = None,
) -> PairedMeans | None:
    """Return the tokens per step of each rule, K and γ, of the bound on them, and of trees.

    The numbers in the folder are used again. Without path rules and trees, return None.
    """
    if not (isinstance(source, ModelPair) and (settings.path_rules or settings.nodes)):
        return None
    depth = max(gammas)
    target, draft = (_reader(source, model) for model in (source.target, source.draft))
    most = min(filter(None, (target.context_length, draft.context_length)), default=math.inf)
    places = [
        place
        for place in step_starts(measured, source.starts, depth)
        if len(source.context(place)) + depth <= most
    ]
    if not places:
        raise InvalidInputError(
            f"no context of the text leaves room for γ = {depth} drafts; give a smaller γ or window"
        )
    number = min(settings.contexts, len(places))
    chosen = np.array(places)[np.linspace(0, len(places) - 1, number).round().astype(np.int64)]
    # the positions of a prompt may lie in several windows
    chosen = chosen[np.argsort(source.prompts[chosen], kind="stable")]
    prompts = source.prompts[chosen]
    groups: dict[int, list[tuple[int, ...]]] = {}
    for place, prompt in zip(chosen.tolist(), prompts.tolist(), strict=True):
        groups.setdefault(prompt, []).append(source.context(place))
    sampler = DraftSampler(target, draft, settings, list(groups.values()), progress)

    def saved(setups: Sequence[Setup], compute: Callable[[], Floats]) -> dict[Setup, Floats]:
        """Return the tokens of setups at each context; a file of the folder keeps them."""
        key = json.dumps([setups, chosen.tolist()])
        path = folder / f"drafts-{hashlib.sha256(key.encode()).hexdigest()[:12]}.npz"
        if (part := load_part(path, (0, number))) is None:
            part = {"tokens": compute().reshape(number, len(setups))}
            save_part(path, part)
        return dict(zip(setups, part["tokens"].T, strict=True))

    tokens: dict[Setup, Floats] = {}
    if chains := _chain_setups(settings, gammas, has_bound=len(groups) > 1):
        tokens |= saved(chains, partial(_tokens_of_chains, sampler, chains))
    for tree in tree_setups(settings, gammas):
        tokens |= saved([tree], partial(tokens_of_trees, sampler, tree))
    return PairedMeans("tokens per step", tokens, prompts, level)


def _chain_setups(settings: Settings, gammas: Sequence[int], *, has_bound: bool) -> list[Setup]:
    """Return each rule of the report with each K and γ, then the bound if it can be computed."""
    rules = [*settings.capped_rules, *settings.path_rules]
    if rules and has_bound:
        rules.append(BOUND)
    return [
        Setup(rule, k, gamma)
        for rule, k, gamma in itertools.product(rules, settings.ks, gammas)
        if rule != "block" or k == 1
    ]


def _tokens_of_chains(sampler: DraftSampler, setups: Sequence[Setup]) -> Floats:
    """Sample K chains after each context; return the mean tokens of each setup: [R, setups]."""
    ks, gammas = sampler.settings.ks, sorted({setup.gamma for setup in setups})
    drafter = ModelDrafter(sampler.draft, max(ks), sampler.draft_sampling)
    rules = dict.fromkeys(_of_several(setup.rule) for setup in setups)
    values = block_efficiency(
        sampler.stream(drafter, gammas[-1]),
        [rule for rule in rules if rule != BOUND],
        ks,
        gammas,
        bound=BOUND in rules,
    ).values
    return np.stack([values[Setup(_of_several(s.rule), s.k, s.gamma)] for s in setups], axis=1)


def memory_in_words(vocabulary: int, settings: Settings, gammas: Sequence[int]) -> str:
    """Write how much memory the distributions of sampled drafts take, before they are sampled."""
    samplings = settings.sampling, settings.draft_samplings[0]
    size = recording_bytes(max(settings.ks), max(gammas), vocabulary, *samplings)
    for nodes in settings.nodes:
        size = max(size, tree_bytes(nodes, vocabulary, *samplings))
    together = prompts_of_batch(size)
    return (
        f"Drafts at up to {settings.contexts:,} contexts: at most {size / 1e6:,.1f} MB of "
        f"distributions for each context, {together} contexts in memory"
    )


def _reader(source: ModelPair, model: Any) -> HuggingFaceModel:
    return HuggingFaceModel(model, vocabulary=source.vocabulary)


def _of_several(rule: str) -> str:
    """Return the rule that equals this rule for one chain, and that also verifies several."""
    return "traversal" if rule == "block" else rule


def step_starts(measured: Measured, starts: npt.NDArray[np.int64], gamma: int) -> list[int]:
    """Return the positions at which steps of one chain begin; `starts` are those of windows."""
    if "ratio" in measured:
        accepted: Floats = np.minimum(measured["ratio"][:, 0], 1)
    else:
        accepted = measured["optimum"][:, 0, 0]
    kept = np.random.default_rng(SEED).random(accepted.size) < accepted
    begins: list[int] = []
    for first, stop in itertools.pairwise(starts.tolist()):
        place = first
        while place < stop:
            begins.append(place)
            drafted = kept[place : min(place + gamma, stop)]
            # the step adds its accepted drafts and one more token
            place += (drafted.size if drafted.all() else int(drafted.argmin())) + 1
    return begins
