"""Command line: ``python -m otm.models.gpt.train [TEXT] --preset NAME --out FILE``.

The program trains a byte-level GPT on the first 95 % of a text, and prints its loss on the last
5 %.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from otm._core.display.progress import watching
from otm._core.files.paths import check_writable
from otm._core.optional import require
from otm.errors import InvalidInputError, InvalidParameterError, OTMError
from otm.models.gpt.model import GPT
from otm.models.gpt.transformer import GPTConfig

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["PRESETS", "Preset", "default_text", "split", "train"]

EXCERPT = "king_james_bible_excerpt.txt"
HELD_OUT = 0.05
WARM_UP = 0.05
WEIGHT_DECAY = 0.1
LARGEST_GRADIENT = 1.0


class Preset(NamedTuple):
    """Sizes of a GPT, with a suitable learning rate and dropout probability.

    Attributes
    ----------
    config : GPTConfig
        Sizes of the model.
    learning_rate : float
        Peak learning rate.
    dropout : float
        Dropout probability in [0, 1).

    Examples
    --------
    >>> PRESETS["small"].learning_rate, PRESETS["small"].config.size
    (0.01, 16660)
    """

    config: GPTConfig
    learning_rate: float
    dropout: float = 0.0


PRESETS = {
    "target": Preset(GPTConfig(layers=4, width=128, heads=4), 2e-3, dropout=0.1),
    "large": Preset(GPTConfig(layers=3, width=64, heads=2), 4e-3),
    "medium": Preset(GPTConfig(layers=2, width=40, heads=2), 6e-3),
    "small": Preset(GPTConfig(layers=1, width=28, heads=2), 1e-2),
    "paper-97m": Preset(GPTConfig(layers=12, width=768, heads=12), 6e-4),
    "paper-20m": Preset(GPTConfig(layers=4, width=512, heads=8), 1e-3),
    "paper-6m": Preset(GPTConfig(layers=2, width=256, heads=4), 2e-3),
    "paper-2m": Preset(GPTConfig(layers=1, width=128, heads=2), 4e-3),
}
"""Four sizes for two CPU cores, and four sizes of [sun2023]_, appendix E, for a GPU.

The presets of the paper have its layers, widths and heads.  The paper's numbers of parameters are
in their names.
A byte-level model has fewer parameters, since the paper's vocabulary of thousands of tokens has a
separate matrix.

.. [sun2023] Sun et al., "SpecTr", NeurIPS 2023.
"""


def default_text() -> bytes:
    """Return the excerpt of the King James Bible that comes with this package.

    Returns
    -------
    bytes
        About 480,000 bytes of ASCII.

    Examples
    --------
    >>> default_text()[:22]
    b'Now it came to pass in'
    """
    return (files("otm.models") / "data" / EXCERPT).read_bytes()


def split(text: bytes) -> tuple[Tensor, Tensor]:
    """Split a text into the first 95 % for training and the last 5 % for evaluation.

    Parameters
    ----------
    text : bytes
        The text as N bytes.

    Returns
    -------
    int64 tensor [M], int64 tensor [N − M]
        Token ids, which are the bytes, of the first and the last part.

    Raises
    ------
    MissingDependencyError
        If torch is not installed.

    Examples
    --------
    >>> tokens, held_out = split(b"in the beginning was")
    >>> len(tokens), held_out
    (19, tensor([115]))
    """
    torch = require("torch")
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    boundary = round(len(text) * (1 - HELD_OUT))
    return tokens[:boundary], tokens[boundary:]


def train(
    model: GPT,
    tokens: Tensor,
    *,
    steps: int,
    batch: int,
    learning_rate: float,
    seed: int,
    dropout: float = 0.0,
    bfloat16: bool = False,
) -> None:
    """Train a model in place with AdamW and a cosine schedule.

    Parameters
    ----------
    model : GPT
        The model; its weights change and stay on their device.
    tokens : int64 tensor [N]
        Token ids of the text; N must be greater than `context_length`.
    steps : int
        Number of updates.
    batch : int
        Number of windows in each update.  A window has the length of the context and a random
        position in the text.
    learning_rate : float
        Peak learning rate, reached after 5 % of the steps; it then falls to a tenth of the peak.
    seed : int
        Seed of the window positions and of dropout.
    dropout : float, optional
        Dropout probability in [0, 1) for the outputs of attention and perceptron in each block.
    bfloat16 : bool, optional
        Whether matrix products use bfloat16.

    Raises
    ------
    MissingDependencyError
        If torch is not installed.

    Examples
    --------
    >>> model = GPT.random(GPTConfig(layers=1, width=8, heads=2, context_length=16), seed=0)
    >>> tokens, held_out = split(default_text()[:2000])
    >>> before = loss(model, held_out)
    >>> train(model, tokens, steps=20, batch=4, learning_rate=1e-2, seed=0)
    >>> loss(model, held_out) < before
    True
    """
    torch = require("torch")
    generator = torch.Generator().manual_seed(seed)
    weights = list(model.weights.values())
    device, length = weights[0].device, model.config.context_length
    noise = torch.Generator(device).manual_seed(seed)

    def drop(x: Tensor) -> Any:
        return x * torch.empty_like(x).bernoulli_(1 - dropout, generator=noise) / (1 - dropout)

    for weight in weights:
        weight.requires_grad_()
    groups = [
        {"params": [w for w in weights if w.ndim == 2], "weight_decay": WEIGHT_DECAY},
        {"params": [w for w in weights if w.ndim == 1], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.99), fused=True)
    with watching(None, "training") as watch:
        label = "step"
        for step in range(steps):
            watch.tell(label, step + 1, steps)
            for group in optimiser.param_groups:
                group["lr"] = learning_rate * _schedule(step, steps)
            starts = torch.randint(len(tokens) - length, (batch, 1), generator=generator)
            windows = tokens[starts + torch.arange(length + 1)].to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
                logits = model.logits(windows[:, :-1], drop if dropout else None)
            mean = torch.nn.functional.cross_entropy(
                logits.float().flatten(0, 1), windows[:, 1:].flatten()
            )
            optimiser.zero_grad()
            mean.backward()
            torch.nn.utils.clip_grad_norm_(weights, LARGEST_GRADIENT)
            optimiser.step()
            if step % 20 == 19:
                label = f"{mean.item():.3f} nats/byte, step"
    for weight in weights:
        weight.requires_grad_(False)


def loss(model: GPT, tokens: Tensor) -> float:
    """Return the mean of −log P(byte | earlier bytes) in nats, over windows of the context length.

    Windows do not overlap; the first byte of a window is not scored.
    """
    torch = require("torch")
    embedding = model.weights["embedding"]
    total, count = 0.0, 0
    with torch.inference_mode():
        for window in tokens.split(model.config.context_length):
            row = window[None].to(embedding.device)
            logs = torch.log_softmax(model.logits(row[:, :-1]).double(), -1)
            total -= logs.gather(-1, row[:, 1:, None]).sum().item()
            count += len(window) - 1
    return total / count


def main(arguments: Sequence[str] | None = None) -> int:
    """Train a model, write it to a file, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m otm.models.gpt.train",
        description="Train a byte-level GPT on a text; the last 5 % are used for evaluation.",
    )
    add = parser.add_argument
    text_help = "training text (default: the excerpt of the King James Bible in this package)"
    add("text", nargs="?", type=Path, metavar="TEXT", help=text_help)
    add("--preset", choices=PRESETS, default="small", help="model sizes (default: small)")
    add("--steps", type=int, default=2000, help="number of updates (default: 2000)")
    add("--batch", type=int, default=4, help="number of windows per update (default: 4)")
    add("--learning-rate", type=float, help="peak learning rate (default: by preset)")
    add("--seed", type=int, default=0, help="seed of weights, windows and dropout (default: 0)")
    add("--bfloat16", action="store_true", help="use bfloat16 for matrix products")
    add("--out", type=Path, required=True, metavar="FILE", help="model file to write")
    options = parser.parse_args(arguments)
    try:
        config, learning_rate, dropout = PRESETS[options.preset]
        if options.steps < 0 or options.batch < 1:
            raise InvalidParameterError("--steps must be at least 0, and --batch at least 1")
        check_writable(options.out)
        text = options.text.read_bytes() if options.text else default_text()
        tokens, held_out = split(text)
        if len(held_out) < 2 or len(tokens) <= config.context_length:
            raise InvalidInputError(
                f"the text has {len(text):,} bytes; give at least {2 * config.context_length:,} "
                "bytes"
            )
        torch = require("torch")
        # Old versions of torch raise from current_accelerator() if there is none.
        available = torch.accelerator.is_available()
        device = torch.accelerator.current_accelerator() if available else torch.device("cpu")
        model = GPT.random(config, options.seed).to(device=device)
        print(f"{config.size:,} parameters on {device.type}, {len(tokens):,} bytes", flush=True)
        train(
            model, tokens, steps=options.steps, batch=options.batch, seed=options.seed,
            learning_rate=options.learning_rate or learning_rate, dropout=dropout,
            bfloat16=options.bfloat16,
        )  # fmt: skip
        model.save(options.out, dtype=torch.float16)
        held_out_loss = loss(GPT.load(options.out), held_out)
        print(f"held out: {held_out_loss:.4f} nats/byte", flush=True)
    except (OTMError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return 130
    return 0


def _schedule(step: int, steps: int) -> float:
    """Return the fraction of the peak learning rate: linear up to 1, then a cosine down to 0.1."""
    warm = max(round(WARM_UP * steps), 1)
    if step < warm:
        return (step + 1) / warm
    return 0.55 + 0.45 * math.cos(math.pi * (step - warm) / max(steps - warm, 1))


if __name__ == "__main__":
    sys.exit(main())
