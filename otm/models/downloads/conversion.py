"""Convert a GGUF file to a folder of Hugging Face, with the weights in float32."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from otm._core.optional import check_installed, require
from otm.errors import DownloadError


def check_packages() -> None:
    """Raise if a package that reads GGUF files is missing; call this before the download."""
    check_installed("torch", "transformers", "gguf", "accelerate")


def convert(gguf: Path, folder: Path) -> None:
    """Write model, tokenizer and settings of a GGUF file to a folder.

    The quantized weights become the float32 numbers that they stand for, so nothing is lost.
    """
    transformers, torch = require("transformers"), require("torch")
    where, file = str(gguf.parent), gguf.name
    with quiet_in_pipes(transformers):
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(where, gguf_file=file)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                where, gguf_file=file, dtype=torch.float32
            )
        # the checksum is right, so an error of transformers is about its version
        except Exception as error:
            raise DownloadError(
                f"transformers cannot read {file} ({' '.join(str(error).split()):.160}); install "
                'the versions that are tested: pip install "otm[real]"'
            ) from error
        # the weights are float32 now, and the folder must not say otherwise
        model.is_quantized, model.hf_quantizer = False, None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def quiet_in_pipes(transformers: Any) -> Iterator[None]:
    """Hide the progress bars of transformers, unless standard error is a terminal."""
    if sys.stderr is not None and sys.stderr.isatty():
        yield
        return
    logging = transformers.utils.logging
    shows = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        # the bar over the tensors of a GGUF file has no setting
        with redirect_stderr(StringIO()):
            yield
    finally:
        if shows:
            logging.enable_progress_bar()
