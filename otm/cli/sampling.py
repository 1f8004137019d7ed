"""Options of commands that sample from both models, and the sampling that they ask for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from typer import Option

from otm.errors import InvalidInputError

if TYPE_CHECKING:
    from otm.decoding.sampling_parameters import SamplingParameters

Temperature: TypeAlias = Annotated[float, Option(help="Temperature of both models.")]
TopK: TypeAlias = Annotated[int | None, Option(help="Top-k of both models.")]
TopP: TypeAlias = Annotated[float | None, Option(help="Top-p of both models.")]
MinP: TypeAlias = Annotated[float | None, Option(help="Min-p of both models.")]
GenerationConfig: TypeAlias = Annotated[
    Path | None,
    Option(
        metavar="DIR|FILE",
        help="generation_config.json of the target, or its folder: sample as generate does.",
    ),
]


def sampling_of(
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    generation_config: Path | None,
) -> SamplingParameters:
    """Return the sampling of these options, of which a configuration stands alone."""
    from otm.decoding.generation_config import read_generation_config
    from otm.decoding.sampling_parameters import SamplingParameters

    sampling = SamplingParameters(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    if generation_config is None:
        return sampling
    if sampling != SamplingParameters():
        raise InvalidInputError(
            "--generation-config beside --temperature, --top-k, --top-p or --min-p; give either"
        )
    return read_generation_config(generation_config)
