"""Two models, and the contexts of a report at which drafts are sampled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from otm._core.display.progress import Progress
from otm.decoding.drafters.base import Drafter
from otm.decoding.reading import Context
from otm.decoding.sampling_parameters import SamplingParameters
from otm.gain.recording import Recording, stream_recordings
from otm.gain.reports.settings import Settings
from otm.models.base import LanguageModel

SEED = 0
"""Seed of the drafts, and of the steps along the text."""


@dataclass(frozen=True, eq=False)
class DraftSampler:
    """Both models of a report, its settings, and the contexts of each prompt."""

    target: LanguageModel
    draft: LanguageModel
    settings: Settings
    contexts: Sequence[Sequence[Context]]
    progress: Progress | None = None

    @property
    def draft_sampling(self) -> SamplingParameters:
        """Sampling parameters of the draft model, at the main temperature."""
        return self.settings.draft_samplings[0]

    def stream(self, drafter: Drafter, depth: int) -> Iterator[Recording]:
        """Yield the recordings of a drafter; the prompts of a batch alternate."""
        return stream_recordings(
            self.target,
            drafter,
            self.contexts,
            depth,
            sampling=self.settings.sampling,
            seed=SEED,
            progress=self.progress,
        )
