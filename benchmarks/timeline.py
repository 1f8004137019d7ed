"""Record all model calls while the same number of tokens is decoded in three ways.

    python -m benchmarks.timeline [--quick] [--save | --output FILE]

The ways are speculative decoding with γ = 7 and γ = 3, and decoding without drafts.  There are two
pairs:

- a target of 48 layers with random weights, and its first layer as the draft.  The vocabulary has
  50,257 tokens, with top-k 1,000; a draft costs about a fifth of the target.  The contribution of
  the layers above the first is scaled down until about four of five drafts are accepted, as for the
  models of Leviathan et al.;
- the byte-level target of this package and its smallest draft.

Each call is timed separately, with one torch thread.  To show a typical decoding, each method uses
the seed with the median number of target calls; these runs also warm up.  Then the methods take
turns with their seeds and always return the same tokens, and the run of median duration is kept.
With --save the results go to benchmarks/results/timeline.json.
"""

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.command import command, keep, options_of
from benchmarks.loops.models import VOCABULARY, random_pair
from benchmarks.machine import machine
from figures.shipped_pairs import SIZES, prompts_of_text
from otm.decoding import Generation, SamplingParameters, autoregressive, speculative
from otm.models import GPT, LanguageModel, Session, load

RESULTS = Path(__file__).parent / "results" / "timeline.json"

GAMMAS = (7, 3, 0)
"""Values of γ of the decoding methods; 0 means without drafts."""

TOKENS = 24
PROMPT = 16
"""Length of a prompt, short enough that reading it does not fill the picture."""

SEEDS = 15
ROUNDS = 9
LAYERS = 48
SCALE = 0.3
"""Factor for the contribution of the layers above the first."""


class Call(NamedTuple):
    """One call of a model, with its begin and end in milliseconds."""

    call: str
    begin_ms: float
    end_ms: float


class TimedModel(LanguageModel):
    """A model that records its calls.

    Parameters
    ----------
    model : LanguageModel
        A model on the CPU, where a call is complete when it returns.
    name : str
        Name of its calls; calls that read the prompt get ", prompt" appended.
    calls : list of Call
        List to which the calls are appended, with times of the clock.
    """

    def __init__(self, model: LanguageModel, name: str, calls: list[Call]) -> None:
        self.vocabulary = model.vocabulary
        self.context_length = model.context_length
        self.returns_probs = model.returns_probs
        self._model, self._name, self._calls = model, name, calls

    def start(self, rows: int) -> Session:
        """Open a session that records its calls."""
        return _TimedSession(self._model.start(rows), self._name, self._calls)


class _TimedSession(Session):
    def __init__(self, session: Session, name: str, calls: list[Call]) -> None:
        self._session, self._name, self._calls = session, name, calls

    def append(self, tokens: npt.NDArray[np.int64]) -> Any:
        begun = time.perf_counter()
        scores = self._session.append(tokens)
        self._calls.append(Call(self._name, 1e3 * begun, 1e3 * time.perf_counter()))
        return scores

    def read(self, tokens: npt.NDArray[np.int64]) -> None:
        begun = time.perf_counter()
        self._session.read(tokens)
        ended = time.perf_counter()
        self._calls.append(Call(f"{self._name}, prompt", 1e3 * begun, 1e3 * ended))

    def keep(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        self._session.keep(rows, lengths)


def decode(
    target: LanguageModel, draft: LanguageModel, gamma: int, prompt: list[int], **options: Any
) -> dict[str, Any]:
    """Decode once; return γ, the time, the tokens of each step, and the calls."""
    calls: list[Call] = []
    models = TimedModel(target, "target", calls), TimedModel(draft, "draft", calls)
    begun = time.perf_counter()
    made: Generation
    if gamma:
        made = speculative(*models, [prompt], gamma=gamma, **options)
    else:
        made = autoregressive(models[0], [prompt], **options)
    ended = time.perf_counter()
    return {
        "gamma": gamma,
        "wall_ms": 1e3 * (ended - begun),
        "outputs": [len(step.output) for step in made.steps],
        "calls": [
            {"call": name, "begin_ms": begin - 1e3 * begun, "end_ms": end - 1e3 * begun}
            for name, begin, end in calls
        ],
    }


def of_pair(
    name: str,
    target: LanguageModel,
    draft: LanguageModel,
    prompt: list[int],
    *,
    seeds: int,
    rounds: int,
    **options: Any,
) -> dict[str, Any]:
    """Decode with a pair by all methods, in turns, and return the median runs."""

    def once(gamma: int, seed: int) -> dict[str, Any]:
        return decode(target, draft, gamma, prompt, max_tokens=TOKENS, seed=seed, **options)

    median = {
        gamma: sorted(range(seeds), key=lambda seed: len(once(gamma, seed)["outputs"]))[seeds // 2]
        for gamma in GAMMAS
    }
    turns = [{gamma: once(gamma, median[gamma]) for gamma in GAMMAS} for _ in range(rounds)]
    ways = []
    for gamma in GAMMAS:
        in_order = sorted((turn[gamma] for turn in turns), key=lambda run: run["wall_ms"])
        ways.append({"seed": median[gamma], **in_order[rounds // 2]})
    for way in ways:
        print(f"  {name}: γ = {way['gamma']}, {way['wall_ms']:.1f} ms, tokens {way['outputs']}")
    return {"pair": name, "ways": ways}


def alike_pair(layers: int) -> tuple[GPT, GPT]:
    """Make the random pair, and scale down the layers above the first in the target."""
    target, draft = random_pair(layers)
    weights = {
        name: weight * SCALE
        if name.endswith(("attention_output", "perceptron_output")) and not name.startswith("0.")
        else weight
        for name, weight in target.weights.items()
    }
    return GPT(target.config, weights), draft


def run(*, quick: bool) -> dict[str, Any]:
    """Measure both pairs, and return the record."""
    import torch

    torch.set_num_threads(1)
    layers, seeds, rounds = (2, 1, 1) if quick else (LAYERS, SEEDS, ROUNDS)
    prompt = np.random.default_rng(0).integers(0, VOCABULARY, PROMPT).tolist()
    random = of_pair(
        f"{layers} layers and 1, random weights",
        *alike_pair(layers),
        prompt,
        seeds=seeds,
        rounds=rounds,
        sampling=SamplingParameters(top_k=1000),
    )
    shipped = of_pair(
        f"shipped models, {SIZES['target']} and {SIZES['small']} parameters",
        load("target"),
        load("small"),
        *prompts_of_text(1, PROMPT),
        seeds=seeds,
        rounds=rounds,
    )
    return {
        **machine("numpy", "torch"),
        "rounds": rounds,
        "tokens": TOKENS,
        "pairs": [random, shipped],
    }


def main() -> None:
    """Run the benchmark from the command line."""
    parser = command("Time every model call during decoding.")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write this file")
    arguments = options_of(parser)
    results = run(quick=arguments.quick)
    for file in [*[RESULTS] * arguments.save, *filter(None, [arguments.output])]:
        keep(results, file)


if __name__ == "__main__":
    main()
