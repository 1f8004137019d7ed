"""Comparison of the sampling parameters of a report with those of a `generate` call."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from otm._core.display.text import shown
from otm._core.files.paths import AnyPath, as_path, file_label, read_json
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidInputError, InvalidParameterError

FILE = "report.json"


@dataclass(frozen=True)
class Reported:
    """The sampling parameters of a report."""

    name: str
    sampling: SamplingParameters

    @classmethod
    def read(cls, path: AnyPath) -> Reported:
        """Read the sampling parameters from `report.json`, or from the folder of a report."""
        place = as_path(path, "of a report, or its folder")
        file = place / FILE if place.is_dir() else place
        document = read_json(file)
        try:
            sampling = SamplingParameters(**document["settings"]["sampling"])
        except (TypeError, KeyError, InvalidParameterError) as error:
            raise InvalidInputError(
                f"{file_label(file)} is not a report of `otm report`: {shown(error)}; give its "
                f"{FILE}, or the folder that contains it"
            ) from None
        return cls(file_label(file), sampling)

    def compare(self, sampling: SamplingParameters, processors: int) -> None:
        """Warn if a call has different sampling parameters, or logits processors."""
        differs = []
        if sampling != self.sampling:
            differs.append(f"samples with {sampling}, but the report assumed {self.sampling}")
        if processors:
            several = "s" if processors > 1 else ""
            differs.append(
                f"has {processors} logits processor{several}, which the report does not include"
            )
        if differs:
            warnings.warn(
                f"this call of generate {' and '.join(differs)}: its acceptance and its tokens per "
                f"step will differ from {self.name}.  Give generate the same settings (top_k=0 "
                "disables its top-k of 50), or compute the report again (otm report "
                "--generation-config).  Ignore this warning if the report used recorded scores "
                "that include these settings",
                stacklevel=2,
            )
