"""Measure watermarks with drafts: tokens per step, and how soon a text is detected.

    python -m benchmarks.watermark [--quick] [--save]

- texts: no watermark, coupled decoding, and rejection with random or keyed coins.  They run on the
  shipped pairs with γ = 4, from the same prompts, with one key for each prompt.  Measured are
  tokens per step, −log10 of the p-value of the first 64 and of 128 tokens, and the share of texts
  with p < 1e-4.  Intervals are over prompts, and differences to coupled decoding are paired.
  "Without drafts" is the watermark alone, whose text is that of coupled decoding; "bonus by list 1"
  draws the bonus token from the other list.
- statistics: acceptance, strength and score of a token in closed form, as means over contexts of
  texts of the target, by threshold of the keyed coins.  Also the gain from coins for any detector
  that uses them to weight scores.

With --save the results go to benchmarks/results/watermark.json.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from figures.shipped_pairs import prompts_of_text, shipped_probs
from otm._core.means import clustered_mean
from otm.coupled import decode_watermarked, detect_watermark, watermark_statistics
from otm.coupled.watermark import DRAFTS, RECOVERED, RejectionRounds
from otm.coupled.watermark_detection import late_score, mean_score
from otm.decoding import SamplingParameters, speculative
from otm.decoding.trace import Generation
from otm.models import load

RESULTS = Path(__file__).parent / "results" / "watermark.json"
GAMMA, SHORT, LONG, PROMPT = 4, 64, 128, 64
CLEAR = 1e-4
THRESHOLDS = (0.5, 0.9, 1.0)
COUPLED = "coupled"

Floats = npt.NDArray[np.float64]


class Way(NamedTuple):
    """A way to decode a text and to detect its watermark."""

    name: str
    method: str | None  # None means without a watermark
    drafts: bool
    read: str  # the method that the detector assumes
    threshold: float | None = None
    bonus: int = DRAFTS


WAYS = (
    Way("no watermark", None, True, "coupled"),
    Way("watermark without drafts", "coupled", False, "coupled"),
    Way(COUPLED, "coupled", True, "coupled"),
    Way("rejection, both lists", "rejection", True, "rejection"),
    Way("rejection, list of drafts", "rejection", True, "coupled"),
    *(
        Way(f"keyed rejection, threshold {x:g}", "keyed rejection", True, "keyed rejection", x)
        for x in THRESHOLDS
    ),
    Way("rejection, bonus by list 1, both lists", "rejection", True, "rejection", None, RECOVERED),
    *(
        Way(
            f"keyed rejection, bonus by list 1, threshold {x:g}",
            "keyed rejection",
            True,
            "keyed rejection",
            x,
            RECOVERED,
        )
        for x in (0.75, 0.9)
    ),
)


def texts(name: str, temperature: float, prompts: int, tokens: int) -> list[dict[str, Any]]:
    """Measure tokens per step and detectability of each way, for the same prompts and keys."""
    target, draft, given = load("target"), load(name), prompts_of_text(prompts, PROMPT)
    keys = np.random.default_rng(0).integers(2**63, size=prompts).tolist()
    options: dict[str, Any] = {
        "gamma": GAMMA,
        "max_tokens": tokens,
        "seed": 0,
        "sampling": SamplingParameters(temperature=temperature),
    }
    made: dict[tuple[str | None, bool, int], Generation] = {}
    values: dict[str, dict[str, Floats]] = {}
    for way in WAYS:
        setting = way.method, way.drafts, way.bonus
        if setting not in made:
            with patch.object(RejectionRounds, "bonus", way.bonus):
                made[setting] = (
                    speculative(target, draft, given, **options)
                    if way.method is None
                    else decode_watermarked(
                        target, draft if way.drafts else None, given, key=keys, method=way.method,
                        **options,
                    )
                )  # fmt: skip
        run = made[setting]
        steps = np.bincount([step.sequence for step in run.steps], minlength=prompts)
        short, long = (
            np.array([
                detect_watermark(
                    text[:length], key, PROMPT, method=way.read, threshold=way.threshold
                ).p_value
                for text, key in zip(run.sequences, keys, strict=True)
            ])
            for length in (tokens // 2, tokens)
        )  # fmt: skip
        values[way.name] = {
            "tokens": np.array([len(text) for text in run.sequences]) / steps,
            "short": -np.log10(short),
            "long": -np.log10(long),
            "clear_short": (short < CLEAR).astype(float),
            "clear_long": (long < CLEAR).astype(float),
        }
    return [_row(name, temperature, way.name, values) for way in WAYS]


def _row(
    name: str, temperature: float, way: str, values: dict[str, dict[str, Floats]]
) -> dict[str, Any]:
    """Return the means of a way, and its paired differences to coupled decoding."""
    row: dict[str, Any] = {"way": way}
    for quantity, found in values[way].items():
        clusters = np.arange(len(found))
        mean = clustered_mean(found, clusters)
        less = clustered_mean(found - values[COUPLED][quantity], clusters)
        row[quantity] = mean._asdict()
        row[f"{quantity}_less_coupled"] = less._asdict()
        print(f"{name}, T {temperature}, {way}, {quantity}: {mean}; minus coupled {less}")
    return row


def laws(name: str, temperature: float, prompts: int, tokens: int) -> dict[str, Any]:
    """Return mean acceptance, strength and score by threshold, and the best weighted signal."""
    found = shipped_probs(
        (name, "target"), prompts=prompts, tokens=tokens, every=4, temperature=temperature
    ).probs
    pairs = list(zip(found[name], found["target"], strict=True))
    by_way: dict[str, Any] = {}
    for threshold in THRESHOLDS:
        of_pairs = [watermark_statistics(p, q, threshold=threshold) for p, q in pairs]
        for method in of_pairs[0]:
            way = f"{method}, threshold {threshold:g}" if "keyed" in method else method
            values = [laws[method] for laws in of_pairs]
            means = dict(zip(values[0]._fields, np.mean(values, axis=0).tolist(), strict=True))
            by_way[way] = means | {"signal": signal(means)}
    record = {"laws": by_way, "signal": weighted_signals(pairs)}
    print(f"{name}, T {temperature}: {record}", flush=True)
    return record


def signal(means: dict[str, float]) -> float:
    """Return the excess of the mean score over the mean without the key, in standard deviations."""
    return (means["score"] - means["clocks"]) / means["clocks"] ** 0.5


def weighted_signals(pairs: Sequence[tuple[Floats, Floats]], points: int = 64) -> dict[str, float]:
    """Return the signal per token of the best weighted sum of scores, with and without coins.

    Let m(u) be the excess over 1 of a list's mean score given the coin u.  The best weights of the
    two lists are ∝ m(u), and the signal is √∫ Σ m(u)² du.  Without coins it is √Σ (∫ m(u) du)².
    """
    middle = (np.arange(points) + 0.5) / points
    excess = np.zeros((2, points))
    for p, q in pairs:
        both, left = np.minimum(p, q), np.maximum(q - p, 0)
        ratio = np.divide(both, p, out=np.ones_like(p), where=p > 0)
        residual = left / max(left.sum(), np.finfo(float).tiny)
        accepted = middle[:, None] < ratio  # [points, n]
        rejected = (~accepted * p).sum(axis=1)
        excess[0] += (accepted * p * (mean_score(p) - 1)).sum(axis=1)
        excess[0] += rejected * (residual * (late_score(p) - 1)).sum()
        excess[1] += rejected * (residual * (mean_score(residual) - 1)).sum()
    excess /= len(pairs)
    return {
        "with coins": float(np.sqrt((excess**2).sum(axis=0).mean())),
        "without": float(np.sqrt((excess.mean(axis=1) ** 2).sum())),
    }


def main() -> None:
    """Run the benchmark from the command line."""
    arguments = options_of(command(__doc__))
    quick = arguments.quick
    settings = [
        (name, temperature)
        for name in (("small",) if quick else ("large", "small"))
        for temperature in ((1,) if quick else (1, 0.5))
    ]
    prompts, tokens = (2, 3) if quick else (300, LONG)
    record = {
        "prompts": prompts,
        "tokens": tokens,
        "gamma": GAMMA,
        "texts": {f"{name}, T {t}": texts(name, t, prompts, tokens) for name, t in settings},
        "laws": {
            f"{name}, T {t}": laws(name, t, *((2, 3) if quick else (100, 64)))
            for name, t in settings
        },
    }
    if arguments.save:
        keep({**machine("numpy", "torch"), **record}, RESULTS)


if __name__ == "__main__":
    main()
