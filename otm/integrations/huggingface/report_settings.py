"""What a report assumed of the sampling, beside what a call of `generate` does."""

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
    """The sampling that a report is about."""

    name: str
    sampling: SamplingParameters

    @classmethod
    def read(cls, path: AnyPath) -> Reported:
        """Read `report.json`, or the folder of a report."""
        place = as_path(path, "of a report, or its folder")
        file = place / FILE if place.is_dir() else place
        document = read_json(file)
        try:
            sampling = SamplingParameters(**document["settings"]["sampling"])
        except (TypeError, KeyError, InvalidParameterError) as error:
            raise InvalidInputError(
                f"{file_label(file)} is no report of `otm report`: {shown(error)}; give its "
                f"{FILE}, or the folder with it"
            ) from None
        return cls(file_label(file), sampling)

    def compare(self, sampling: SamplingParameters, processors: int) -> None:
        """Warn of a call that samples in another way than the report says."""
        differs = []
        if sampling != self.sampling:
            differs.append(f"samples with {sampling}, and the report assumed {self.sampling}")
        if processors:
            several = "s" if processors > 1 else ""
            differs.append(
                f"has {processors} logits processor{several}, of which the report knows nothing"
            )
        if differs:
            warnings.warn(
                f"this call of generate {' and '.join(differs)}: acceptance and tokens a step are "
                f"not those of {self.name}.  Give generate the same settings (top_k=0 turns off "
                "its top-k of 50), or compute the report again (otm report --generation-config).  "
                "All is well if it is of recorded scores that went through these settings",
                stacklevel=2,
            )
