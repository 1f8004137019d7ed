"""Tokens per step of rules that verify whole paths, from drafts that a report samples.

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.display.progress import Progress
from otm._core.means import Floats, PairedMeans, Setup
from otm.decoding.drafters.model import ModelDrafter
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain.efficiency import block_efficiency
from otm.gain.recording import prompts_of_batch, recording_bytes, stream_recordings
from otm.gain.reports.blocks import load_part, save_part
from otm.gain.reports.model_pair import ModelPair
from otm.gain.reports.pairs import Measured
from otm.gain.reports.score_files import Source
from otm.gain.reports.settings import Settings
from otm.models.huggingface.model import HuggingFaceModel

SEED = 0
"""Seed of the drafts, and of the steps along the text."""


def check_drafts(source: Source, settings: Settings) -> None:
    """Raise if path rules have no models, or answers were sampled in another way."""
    if isinstance(source, ModelPair):
        if source.answers not in (None, settings.sampling):
            raise InvalidParameterError(
                f"the target sampled its answers with {source.answers}, and the report assumes "
                f"{settings.sampling}; give `from_models` and `Settings` the same `sampling`"
            )
    elif settings.path_rules:
        raise InvalidParameterError(
            f"{' and '.join(settings.path_rules)} need drafts, which a report samples from two "
            "models that read a text (`from_models`, --text); omit these rules for recorded scores"
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
    """Return the tokens per step of each rule, K and γ; reuse the numbers in the folder, if any.

    Without path rules, return None.
    """
    if not (isinstance(source, ModelPair) and settings.path_rules):
        return None
    depth, target = max(gammas), _reader(source, source.target)
    limits = target.context_length, _reader(source, source.draft).context_length
    places = [
        place
        for place in step_starts(measured, source.starts, depth)
        if len(source.context(place)) + depth <= min(filter(None, limits), default=math.inf)
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
    rules = (*settings.capped_rules, *settings.path_rules)
    setups = [
        Setup(rule, k, gamma)
        for rule, k, gamma in itertools.product(rules, settings.ks, gammas)
        if rule != "block" or k == 1
    ]
    key = json.dumps([setups, chosen.tolist()])
    path = folder / f"drafts-{hashlib.sha256(key.encode()).hexdigest()[:12]}.npz"
    if (part := load_part(path, (0, number))) is None:
        groups: dict[int, list[tuple[int, ...]]] = {}
        for place, prompt in zip(chosen.tolist(), prompts.tolist(), strict=True):
            groups.setdefault(prompt, []).append(source.context(place))
        draft_sampling = settings.draft_samplings[0]
        stream = stream_recordings(
            target,
            ModelDrafter(_reader(source, source.draft), max(settings.ks), draft_sampling),
            list(groups.values()),
            depth,
            sampling=settings.sampling,
            seed=SEED,
            progress=progress,
        )
        names = list(dict.fromkeys(map(_of_several, rules)))
        values = block_efficiency(stream, names, settings.ks, gammas).values
        columns = [values[Setup(_of_several(s.rule), s.k, s.gamma)] for s in setups]
        part = {"tokens": np.stack(columns, axis=1)}
        save_part(path, part)
    tokens = dict(zip(setups, part["tokens"].T, strict=True))
    return PairedMeans("tokens per step", tokens, prompts, level)


def memory_in_words(vocabulary: int, settings: Settings, gammas: Sequence[int]) -> str:
    """Write how much memory the distributions of sampled drafts take, before they are sampled."""
    size = recording_bytes(
        max(settings.ks),
        max(gammas),
        vocabulary,
        settings.sampling,
        settings.draft_samplings[0],
    )
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
