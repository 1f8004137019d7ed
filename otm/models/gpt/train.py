"""Command line: ``python -m otm.models.gpt.train [TEXT] --preset NAME --out FILE``.

Trains a byte-level GPT on the first 95 % of a text and says how well it knows the rest.
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
from otm._core.files.paths import check_place
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
    """Sizes of a GPT, and the learning rate and dropout that suit them.

    Attributes
    ----------
    config : GPTConfig
        Sizes of the model.
    learning_rate : float
        Peak of the learning rate.
    dropout : float
        Dropout probability, in [0, 1).

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
"""Four sizes for two CPU cores, and those of [sun2023]_, appendix E, for a GPU.

The latter have the layers, widths and heads of the paper and its numbers of parameters as names;
with bytes for tokens they have fewer, since the paper's vocabulary of thousands has a matrix of its
own.

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
    """Split a text into its first 95 %, to train on, and the held-out rest.

    Parameters
    ----------
    text : bytes
        N bytes.

    Returns
    -------
    int64 tensor [M], int64 tensor [N − M]
        Token ids of both parts: their bytes.

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
    """Train a model in place, with AdamW and a cosine schedule.

    Parameters
    ----------
    model : GPT
        Its weights change, and stay on their device.
    tokens : int64 tensor [N]
        The text, longer than the context.
    steps : int
        Number of updates.
    batch : int
        Number of windows for an update, each as long as the context and from a random place.
    learning_rate : float
        Peak of the learning rate, after 5 % of the steps; it falls to a tenth of the peak.
    seed : int
        Seed of the windows and of dropout.
    dropout : float, optional
        Dropout probability of what each block adds, in [0, 1).
    bfloat16 : bool, optional
        Whether to multiply matrices in bfloat16.

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
        told = "step"
        for step in range(steps):
            watch.tell(told, step + 1, steps)
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
                told = f"{mean.item():.3f} nats/byte, step"
    for weight in weights:
        weight.requires_grad_(False)


def loss(model: GPT, tokens: Tensor) -> float:
    """Mean of −log P(byte | bytes before it), in nats, over windows of the context's length.

    Windows do not overlap; the first byte of each is not scored.
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
        description="Train a byte-level GPT; the last 5 % of the text are held out.",
    )
    add = parser.add_argument
    described = "file to train on (default: the excerpt of the King James Bible in this package)"
    add("text", nargs="?", type=Path, metavar="TEXT", help=described)
    add("--preset", choices=PRESETS, default="small", help="sizes (default: small)")
    add("--steps", type=int, default=2000, help="updates (default: 2000)")
    add("--batch", type=int, default=4, help="windows for each (default: 4)")
    add("--learning-rate", type=float, help="its peak (default: by preset)")
    add("--seed", type=int, default=0, help="draws weights and windows (default: 0)")
    add("--bfloat16", action="store_true", help="multiply matrices in bfloat16")
    add("--out", type=Path, required=True, metavar="FILE", help="where to write")
    options = parser.parse_args(arguments)
    try:
        config, learning_rate, dropout = PRESETS[options.preset]
        if options.steps < 0 or options.batch < 1:
            raise InvalidParameterError("give 0 steps or more, and a batch of 1 or more")
        check_place(options.out)
        text = options.text.read_bytes() if options.text else default_text()
        tokens, held_out = split(text)
        if len(held_out) < 2 or len(tokens) <= config.context_length:
            raise InvalidInputError(
                f"the text has {len(text):,} bytes; give one of {2 * config.context_length:,} or "
                "more"
            )
        torch = require("torch")
        there = torch.accelerator.is_available()  # without one, old versions raise instead
        device = torch.accelerator.current_accelerator() if there else torch.device("cpu")
        model = GPT.random(config, options.seed).to(device=device)
        print(f"{config.size:,} parameters on {device.type}, {len(tokens):,} bytes", flush=True)
        train(
            model, tokens, steps=options.steps, batch=options.batch, seed=options.seed,
            learning_rate=options.learning_rate or learning_rate, dropout=dropout,
            bfloat16=options.bfloat16,
        )  # fmt: skip
        model.save(options.out, dtype=torch.float16)
        held = loss(GPT.load(options.out), held_out)
        print(f"held out: {held:.4f} nats/byte", flush=True)
    except (OTMError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return 130
    return 0


def _schedule(step: int, steps: int) -> float:
    """Share of the learning rate: up to 1 in a line, then down to 0.1 along a cosine."""
    warm = max(round(WARM_UP * steps), 1)
    if step < warm:
        return (step + 1) / warm
    return 0.55 + 0.45 * math.cos(math.pi * (step - warm) / max(steps - warm, 1))


if __name__ == "__main__":
    sys.exit(main())
