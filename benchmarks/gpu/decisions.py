"""Check that the kernels decide like the NumPy reference, in single calls and in graph replays."""

import itertools
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.chain import clocks
from benchmarks.chain.measure import in_short
from benchmarks.gpu.environment import Row
from benchmarks.gpu.inputs import FIRST, by_kernels, by_numpy, by_torch, make
from benchmarks.gpu.settings import TYPES, Setting
from otm.kernels import Verified, Workspace, self_checks

FORMS = ("probabilities", "logits")


def uses(setting: Setting, rules: tuple[str, ...]) -> Iterator[tuple[str, str, bool]]:
    """Yield the name of a rule, the name of a type, and whether rows are logits."""
    for number, (rule, logits) in enumerate(itertools.product(rules, (False, True))):
        some = setting.types
        if setting.rehearsal:
            some = (some[number % len(some)],)
        yield from ((rule, dtype, logits) for dtype in some)


def title(rule: str, dtype: str, logits: bool, batch: int, size: int) -> str:
    return f"{rule}, {FORMS[logits]}, {dtype}, B = {batch}, V = {size:,}"


def small(setting: Setting) -> Iterator[Row]:
    """Compare kernels and torch on the device with NumPy, for every sequence."""
    for size, (rule, dtype, logits) in itertools.product(
        setting.small, uses(setting, setting.rules)
    ):
        batch = setting.sequences
        shape = (batch, setting.chains, setting.gamma, size)
        row: Row = {"case": title(rule, dtype, logits, batch, size), "sequences": batch}
        try:
            inputs = make(rule, shape, TYPES[dtype], setting.device, logits=logits)
            outcome, row["first call s"] = first_call(setting, rule, inputs)
            expected = by_numpy(rule, inputs)
            row["different"] = different(outcome, expected)
            row["torch different"] = different(by_torch(rule, inputs), expected)
            row["passed"] = not (row["different"] or row["torch different"])
        except Exception as error:
            row |= failed(error)
        yield row


def serving(setting: Setting) -> Iterator[Row]:
    """Compare kernels with torch for all sequences, and with NumPy for the first ones."""
    for (batch, size), (rule, dtype, logits) in itertools.product(
        setting.serving, uses(setting, setting.few)
    ):
        shape = (batch, setting.chains, setting.gamma, size)
        row: Row = {"case": title(rule, dtype, logits, batch, size), "sequences": batch}
        try:
            inputs = make(rule, shape, TYPES[dtype], setting.device, logits=logits)
            outcome, row["first call s"] = first_call(setting, rule, inputs)
            row["different"] = different(outcome, by_torch(rule, inputs))
            few = [x[:FIRST] for x in inputs]
            first = Verified(*(x if x is None else x[:FIRST] for x in outcome))
            row["different from NumPy"] = different(first, by_numpy(rule, few))
            row["passed"] = not (row["different"] or row["different from NumPy"])
            row["accepted"] = float(outcome.accepted.double().mean())
        except Exception as error:
            row |= failed(error)
        yield row


def checked(setting: Setting) -> Iterator[Row]:
    """Report the backend that "auto" chooses with compiled kernels, and the time of its check."""
    batch, size = setting.replayed
    shape = (batch, setting.chains, setting.gamma, size)
    for rule, dtype, logits in uses(setting, setting.rules):
        row: Row = {"case": title(rule, dtype, logits, batch, size)}
        try:
            inputs = make(rule, shape, TYPES[dtype], setting.device, logits=logits)
            if not setting.rehearsal:
                by_kernels(rule, inputs)
            before = len(self_checks())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the row has this information
                by_kernels(rule, inputs, backend="auto")
            for check in self_checks()[before:]:
                row |= {"backend": check.backend, "check s": check.seconds, "note": check.reason}
            row["passed"] = setting.rehearsal or row.get("backend") == "triton"
        except Exception as error:
            row |= failed(error)
        yield row


def graphs(setting: Setting) -> Iterator[Row]:
    """Compare graph replays with new inputs in the same memory with single calls."""
    (batch, size), workspace = setting.replayed, Workspace()
    shape = (batch, setting.chains, setting.gamma, size)
    for rule, dtype, logits in uses(setting, setting.few):
        row: Row = {"case": title(rule, dtype, logits, batch, size), "replays": setting.replays}
        options: dict[str, Any] = {"device": setting.device, "logits": logits}
        try:
            drawn = make(rule, shape, TYPES[dtype], **options)
            static = [x.contiguous() for x in drawn]
            before = by_kernels(rule, static, workspace)  # this call compiles
            clocks.wait(setting.device)
            graph = clocks.Graph([lambda r=rule, i=static: by_kernels(r, i, workspace)])
            row["different"] = row["changed"] = 0
            for seed in range(1, setting.replays + 1):
                fresh = make(rule, shape, TYPES[dtype], **options, seed=seed)
                for old, new in zip(static, fresh, strict=True):
                    old.copy_(new)
                graph.seconds()
                row["different"] += different(graph.results[0], by_kernels(rule, fresh))
                row["changed"] += different(graph.results[0], before)
            # A graph without effect would return the results of the first call.
            row["passed"] = row["different"] == 0 and row["changed"] > 0
        except Exception as error:
            row |= failed(error)
        yield row


def first_call(setting: Setting, rule: str, inputs: list[Any]) -> tuple[Verified[Any], float]:
    """Verify by the kernels; also return the seconds, including compilation in the first call."""
    begun = time.perf_counter()
    outcome = by_kernels(rule, inputs)
    clocks.wait(setting.device)
    return outcome, time.perf_counter() - begun


def different(outcome: Verified[Any], expected: Verified[Any]) -> int:
    """Count the sequences with different decisions in two verifications."""
    wrong = torch.zeros(len(outcome.accepted), dtype=torch.bool)
    for mine, other in zip(outcome, expected, strict=True):
        if mine is not None or other is not None:
            unequal = torch.as_tensor(mine).cpu() != torch.as_tensor(other).cpu()
            wrong |= unequal.flatten(1).any(1) if unequal.ndim > 1 else unequal
    return int(wrong.sum())


def failed(error: Exception) -> Row:
    """Make a row for an error; lack of memory does not count against the kernels."""
    short = isinstance(error, torch.OutOfMemoryError)
    return {"passed": None if short else False, "note": in_short(error)}
