"""Time of a verification step at V = 32,000, by vLLM's function and by the plug-in's."""

import statistics
import time
from types import SimpleNamespace
from typing import Any

import torch

VOCABULARY = 32_000
BATCH = 64
GAMMA = 4
ROUNDS = 15


def compare_steps(batch: int = BATCH, vocabulary: int = VOCABULARY) -> list[dict[str, Any]]:
    """Time the functions in turns, and return milliseconds and tokens per step."""
    load_kernels()
    from vllm.v1.sample import rejection_sampler as stock

    from otm.integrations.vllm import runner_v1 as ours

    torch.manual_seed(0)
    torch.set_num_threads(1)
    results = []
    for name, distance in (("near draft", 0.3), ("far draft", 1.5)):
        target = 2 * torch.randn(batch * GAMMA, vocabulary)
        draft = (target + distance * torch.randn_like(target)).softmax(-1).contiguous()
        tokens = torch.multinomial(draft, 1).squeeze(1).int()
        for drafts in (draft, None):
            found = {}
            for contestant, call in (
                ("vLLM", stock.rejection_sample),
                ("chain", lambda *a: ours.rejection_sample(*a, rule="chain")),
                ("block", lambda *a: ours.rejection_sample(*a, rule="block")),
            ):
                found[contestant] = timed(call, tokens, drafts, target, batch)
            kind = "probabilities" if drafts is not None else "one-hot"
            results.append({"drafts": f"{name}, {kind}", **found})
            shown = (f"{of} {x['ms']:.0f} ms, {x['tokens']:.2f} tokens" for of, x in found.items())
            print(f"{results[-1]['drafts']}: {'; '.join(shown)}", flush=True)
    return results


def load_kernels() -> None:
    """Load the code that vLLM's functions call on a CPU."""
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    current_platform.register_triton_kernel_overrides()


def audit_function() -> dict[str, Any]:
    """Audit vLLM's chain verification function by itself; it is correct."""
    load_kernels()
    from otm.audit import lossless
    from otm.audit.adapters import vllm

    start = time.monotonic()
    report = lossless(vllm.rejection_sample(device="cpu"), examples=0, delta=0.05)
    print(report, flush=True)
    found = {"lossless": report.lossless, "verdict": report.verdict, "tv": report.tv_distance}
    return {**found, "seconds": time.monotonic() - start}


def timed(call: Any, tokens: Any, drafts: Any, target: Any, batch: int) -> dict[str, float]:
    """Return the median milliseconds of a call, and the mean tokens per request."""
    meta = SimpleNamespace(
        all_greedy=False,
        all_random=True,
        temperature=torch.ones(batch),
        top_k=None,
        top_p=None,
        generators={},
    )
    ends = torch.arange(GAMMA, batch * GAMMA + 1, GAMMA, dtype=torch.int32)
    bonus = torch.zeros(batch, 1, dtype=torch.int32)
    times, lengths = [], []
    for _ in range(ROUNDS):
        logits = target.clone()  # the function may change it in place
        start = time.perf_counter()
        output = call(tokens, [GAMMA] * batch, GAMMA, ends, drafts, logits, bonus, meta)
        times.append(time.perf_counter() - start)
        lengths.append(float((output >= 0).sum()) / batch)
    return {"ms": 1000 * statistics.median(times), "tokens": statistics.fmean(lengths)}
