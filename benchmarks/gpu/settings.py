"""Sizes of all stages: on a GPU, and in a rehearsal on a CPU."""

import sys
from typing import NamedTuple

import torch

from benchmarks.chain.measure import Effort
from benchmarks.kernels import ON_GPU, Plan
from otm.rules import names

TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
RULES = names("kernel", backend="triton")
SMI = "nvidia-smi --query-gpu={} --format=csv,noheader,nounits"
ONE_CHAIN = ("common.one_chain.add_up", "common.one_chain.draw")
ROWS = tuple(
    f"common.distributions.triton.{name}" for name in ("peaks_and_weights", "finish_softmaxes")
)
SEVERAL_CHAINS = tuple(f"multi_draft.triton.{name}" for name in ("add_up", "make_tables", "draw"))
WALK = tuple(f"walk_and_keep.triton_kernels.{name}" for name in ("add_up", "draw"))


class Setting(NamedTuple):
    """Sizes and options of the stages.

    Attributes
    ----------
    device : torch.device
        Device of the kernels.
    rehearsal : bool
        Whether the run only tests the stages, on a CPU with a stand-in for CUDA.
    plan : Plan
        Sizes of the stages for speed.
    peers : bool
        Whether other projects are measured too.
    rules, few : tuple of str
        Rules checked at small vocabularies, and rules checked in the other stages.
    types : tuple of str
        Types of rows.  A run combines all types and rules; a rehearsal takes the types in turn.
    sequences, small : int and tuple of int
        Number of sequences and vocabulary sizes for checks of all sequences by NumPy.
    serving : tuple of (int, int)
        Numbers of sequences and vocabulary sizes for checks by torch, with NumPy for a few.
    gamma, chains : int
        Number of drafts of a chain, and number of chains K.
    replayed, replays : (int, int) and int
        Number of sequences and vocabulary size of replayed graphs, and number of replays.
    copies : tuple of int
        Sizes in bytes of the measured copies.
    tuned : tuple of (int, int)
        Numbers of sequences and vocabulary sizes of the search for numbers of warps.
    kernels : tuple of str
        Kernels of the search, by their names in `otm.kernels.common.runtime.TUNED`.
    effort : Effort
        Effort of the search.
    candidates : tuple of int
        Candidate numbers of warps.
    checked : (int, int)
        Number of sequences and vocabulary size of the run under compute-sanitizer.
    tokens : int
        Number of new tokens per prompt in the decoding loop.
    layers : int
        Number of layers of the target in the decoding loop; 0 for a tiny model.
    tests : tuple of tuple of str
        Arguments of pytest, one process for each entry; empty for all tests of the kernels.
    nvidia_smi, sanitizer : tuple of str
        Commands of these programs.
    """

    device: torch.device
    rehearsal: bool
    plan: Plan
    peers: bool
    rules: tuple[str, ...]
    few: tuple[str, ...]
    types: tuple[str, ...]
    sequences: int
    small: tuple[int, ...]
    serving: tuple[tuple[int, int], ...]
    gamma: int
    chains: int
    replayed: tuple[int, int]
    replays: int
    copies: tuple[int, ...]
    tuned: tuple[tuple[int, int], ...]
    kernels: tuple[str, ...]
    effort: Effort
    candidates: tuple[int, ...]
    checked: tuple[int, int]
    tokens: int
    layers: int
    tests: tuple[tuple[str, ...], ...] = ()
    nvidia_smi: tuple[str, ...] = tuple(SMI.split())
    sanitizer: tuple[str, ...] = ("compute-sanitizer",)


def on_gpu() -> Setting:
    """Return the sizes on a GPU."""
    return Setting(
        device=torch.device("cuda"),
        rehearsal=False,
        plan=ON_GPU._replace(
            sizes=(32_000, 128_256, 151_936),
            batches=(1, 8, 64, 256),
            rejections=("typical",),
            draws_one_by_one=5_000,
            chains=(4,),
        ),
        peers=True,
        rules=RULES,
        few=RULES,
        types=tuple(TYPES),
        sequences=5,
        small=(10_000, 100, 1, 4_097),
        serving=((64, 128_256), (256, 32_000), (8, 151_936)),
        gamma=4,
        chains=4,
        replayed=(8, 32_000),
        replays=4,
        copies=(2**20, 2**24, 2**28, 2**30),
        tuned=((1, 128_256), (64, 128_256)),
        kernels=(*ONE_CHAIN, *ROWS, *SEVERAL_CHAINS, *WALK),
        effort=Effort(10, 9, 64, 2**33),
        candidates=(2, 4, 8, 16),
        checked=(3, 8_200),
        tokens=128,
        layers=16,
    )


def rehearsal() -> Setting:
    """Return the sizes of a rehearsal."""
    return Setting(
        device=torch.device("cpu"),
        rehearsal=True,
        plan=Plan(
            sizes=(64,),
            batches=(2,),
            gamma=1,
            rejections=("typical",),
            types=(torch.bfloat16,),
            effort=Effort(1, 1, 2, 2**20),
            draws=8,
            draws_one_by_one=4,
            chains=(2,),
        ),
        peers=False,
        rules=RULES,
        few=RULES[:1],
        types=tuple(TYPES),
        sequences=1,
        small=(10,),
        serving=((1, 10),),
        gamma=1,
        chains=2,
        replayed=(1, 10),
        replays=1,
        copies=(2**10,),
        tuned=((1, 10),),
        kernels=ONE_CHAIN[:1],
        effort=Effort(1, 1, 1, 2**20),
        candidates=(4, 8),
        checked=(2, 20),
        tokens=4,
        layers=0,
        tests=(("tests/kernels/common/test_distributions.py", "-k", "fractions"),),
        nvidia_smi=(sys.executable, "-c", "print('rehearsal, 1')"),
        sanitizer=(sys.executable, "-c", "print('========= ERROR SUMMARY: 0 errors')"),
    )
