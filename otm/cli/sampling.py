"""Options for the sampling parameters of both models."""

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
        help="The target's generation_config.json or its folder, for the sampling parameters.",
    ),
]


def sampling_of(
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    generation_config: Path | None,
) -> SamplingParameters:
    """Return the sampling parameters; raise if a configuration and other options are given."""
    from otm.decoding.generation_config import read_generation_config
    from otm.decoding.sampling_parameters import SamplingParameters

    sampling = SamplingParameters(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    if generation_config is None:
        return sampling
    if sampling != SamplingParameters():
        raise InvalidInputError(
            "--generation-config cannot be combined with --temperature, --top-k, --top-p or "
            "--min-p; give the file or these options"
        )
    return read_generation_config(generation_config)
