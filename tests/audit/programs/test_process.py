"""Programs are audited as functions are: the same numbers, methods and verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otm.audit import Instance, chains, lossless, process
from otm.audit.adapters.base import Source
from otm.audit.adapters.drafts import chain_probs, draw_chain
from otm.audit.instances import INSTANCES
from otm.models import TableModel
from tests.audit.programs.children import CHAIN, EACH, LOOP, RIGHT, python

FEW = [INSTANCES[name] for name in ("rows differ", "zeros", "two drafts, two tokens")]

SOFTMAX = """
import math
def softmax(row, temperature):
    weights = [math.exp((x - max(row)) / temperature) for x in row]
    return [w / sum(weights) for w in weights]
def rows(logits):
    return [softmax(row, request["temperature"]) for row in logits]
"""


def as_function(code: str) -> Any:
    """Return the verifier of a program as a function."""
    namespace: dict[str, Any] = {}
    exec(
        code.replace("(target, draft, tokens,", f"({', '.join(NAMES)},").replace(
            "    for i, x",
            "    target, draft, tokens = target_probs, draft_probs, draft_tokens\n    for i, x",
        ),
        namespace,
    )
    return namespace["verify"]


NAMES = ("target_probs", "draft_probs", "draft_tokens")
FUNCTION = as_function(CHAIN)


def audit(command: list[str], few: list[Instance] = FEW, **options: Any) -> Any:
    return lossless(process(command, name="program", **options), instances=few, examples=0)


def test_a_right_verifier_of_a_chain() -> None:
    """Bug: uniforms that the audit does not know, so that it samples."""
    report = audit(python(CHAIN, EACH, RIGHT))
    assert report.lossless, report
    assert (report.verifier, report.method) == ("program", "breakpoints")
    assert report.tv_distance < 1e-8


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        (">= target", "> target", "u ≤ ratio"),
        ("max(t - d, 0)", "abs(t - d)", "residual not clamped"),
        ("sample(target[-1]", "sample(target[-2]", "bonus of the row before"),
        ("uniforms[i] *", "uniforms[0] *", "one coin for all drafts"),
    ],
)
def test_mistakes_have_the_names_that_functions_get(old: str, new: str, name: str) -> None:
    """Bug: the diagnosis needs more than the output of a program."""
    assert old in CHAIN
    report = audit(python(CHAIN.replace(old, new), EACH, RIGHT))
    by_exact_paths = lossless(as_function(CHAIN.replace(old, new)), instances=FEW, examples=0)
    for each in (report, by_exact_paths):
        assert each.verdict == "not lossless"
        assert name in [diagnosis.name for diagnosis in each.diagnoses]


def test_floats_arrive_exactly(tmp_path: Path) -> None:
    """Bugs: rounded digits; integers 0 and 1, or one space, that a simple reader cannot read."""
    third, tiny = 1 / 3, 5e-324
    model = TableModel({(): [third, 1 - third, 0.0], (1,): [1.0, 0.0, 0.0]})
    draft = TableModel({(): [tiny, 1.0 - tiny, 0.0]})
    instance = Instance(model, draft, gamma=2)
    raw = CHAIN + "for line in sys.stdin:\n    open(sys.argv[1], 'a').write(line); "
    command = [*python(raw, "answer(json.loads(line)['id'], [0])"), str(tmp_path / "lines")]
    verifier = process(command)
    uniforms = np.array([0.1, 0.2, 1 / 7, 0.0, 1 - 2**-53, 2**-60])
    assert verifier.output(instance, Source(uniforms)) == (0,)
    verifier.close()
    (line,) = (tmp_path / "lines").read_text().splitlines()
    request = json.loads(line)
    assert list(request) == ["id", "target", "draft", "tokens", "uniforms"]
    assert " " not in line
    assert "0.0" in line
    assert "1.0" in line
    drafts = draw_chain(instance, Source(uniforms))
    for name, rows in zip(("target", "draft"), chain_probs(instance, drafts, False), strict=True):
        assert np.array_equal(request[name], rows.astype(float))
    assert request["tokens"] == list(drafts)
    assert request["uniforms"] == uniforms[2:].tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logits_with_a_temperature(temperature: float, no_diagnosis: None) -> None:
    """Bugs: a program without the temperature, or without normalization, that is right anyway."""
    right = 'verify(rows(request["target_logits"]), rows(request["draft_logits"]), '
    end = 'request["tokens"], request["uniforms"])'
    command = python(CHAIN, SOFTMAX, EACH, f'answer(request["id"], {right}{end})')
    assert audit(command, temperature=temperature).lossless
    raw = SOFTMAX.replace("w / sum(weights)", "w").replace("x - max(row)", "x")
    wrong = python(CHAIN, raw, EACH, f'answer(request["id"], {right}{end})')
    assert audit(wrong, temperature=temperature).verdict == "not lossless"
    if temperature != 1:
        one_side = right.replace("rows(", "softmaxes(", 1)
        softmaxes = SOFTMAX.replace("def rows", "def softmaxes").replace(
            'request["temperature"]', "1"
        )
        wrong = python(CHAIN, SOFTMAX, softmaxes, EACH, f'answer(request["id"], {one_side}{end})')
        assert audit(wrong, temperature=temperature).verdict == "not lossless"


def test_a_program_that_draws_its_own_random_numbers(no_diagnosis: None) -> None:
    """Bug: one request at a time; answers that are mixed up when many are on their way."""
    draws = "rng = random.Random(request['seed']); "
    verify = "verify(request['target'], request['draft'], request['tokens'], "
    for old, verdict in (("", "lossless on everything tried"), ("max(t - d, 0)", "not lossless")):
        chain = CHAIN.replace(old, "t") if old else CHAIN
        uniforms = "[rng.random() for _ in range(len(request['tokens']) + 2)]"
        command = python(chain, EACH, f"{draws}answer(request['id'], {verify}{uniforms}))")
        verifier = process(command, randomness="seed")
        few = [INSTANCES["rows differ"], INSTANCES["two drafts, two tokens"]]
        report = lossless(verifier, instances=few, examples=0, delta=0.1)
        assert (report.verdict, report.method) == (verdict, "Monte Carlo")


def test_several_chains() -> None:
    """Bug: chains in the place of rows; uniforms of one chain alone."""
    first = "answer(request['id'], verify(request['target'][1], request['draft'][1], "
    command = python(CHAIN, EACH, f"{first}request['tokens'][1], request['uniforms'][4:]))")
    program = process(command, kind="chains")

    def second(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        return FUNCTION(target_probs[1], draft_probs[1], draft_tokens[1], uniforms[4:])

    instance = INSTANCES["pairs of two drafts"]
    uniforms = np.random.default_rng(0).random((50, 16))
    expected = chains(second, convert=np.asarray).outputs(instance, uniforms)
    assert program.outputs(instance, uniforms) == expected
    assert len(set(expected)) > 3
    assert program.supports(instance)
    program.close()


def test_loops(no_diagnosis: None) -> None:
    """Bugs: rows of the wrong model or place; an audit that misses tokens behind the end."""
    few = [INSTANCES["two tokens"]]
    report = audit(python(LOOP), few, kind="loop", max_tokens=2)
    assert (report.lossless, report.method) == (True, "breakpoints")
    for old, new in (
        ("sample(target[-1]", "sample(draft[-1]"),
        (":len(prompt) + max_tokens]", ":]"),
    ):
        assert old in LOOP
        report = audit(python(LOOP.replace(old, new)), few, kind="loop", max_tokens=2)
        assert report.verdict == "not lossless"
    assert "cut off the additional tokens" in str(report)


def test_loops_with_an_end_token_and_a_seed(no_diagnosis: None) -> None:
    """Bug: options of loops that do not reach the requests."""
    stops = LOOP.replace(
        "    return text[len(prompt):len(prompt) + max_tokens]",
        "    new = text[len(prompt):len(prompt) + max_tokens]\n"
        "    return new[:new.index(1) + 1] if 1 in new else new",
    ).replace("< len(prompt) + max_tokens:", "< len(prompt) + max_tokens and 1 not in text[1:]:")
    verifier = process(python(stops), kind="loop", end=1, max_tokens=2)
    report = lossless(verifier, instances=[INSTANCES["two tokens"]], examples=0, slow=True)
    assert report.verdict != "not lossless", report
    seeded = (
        stops.replace('ask(uniforms=2 * gamma + 1)["uniforms"]', "[rng.random() for _ in range(9)]")
        .replace(
            "    text = list(prompt)", "    rng, text = random.Random(_['seed']), list(prompt)"
        )
        .replace("new.index(1) + 1", "new.index(1) + 2")
    )
    verifier = process(python(seeded), kind="loop", end=1, randomness="seed")
    report = lossless(verifier, instances=[INSTANCES["two tokens"]], examples=0)
    assert "after the end token 1" in str(report)


def test_full_pipes_do_not_stop_both_sides() -> None:
    """Bug: the program waits until its output or its errors are read, and the audit for it."""
    noise = 'sys.stderr.write("x" * 80_000); '
    padded = f'number = request["id"]; {noise}answer(number, [0] + [-1] * 9_000)'
    verifier = process(python(CHAIN, EACH, padded), randomness="seed")
    uniforms = np.random.default_rng(0).random((300, 8))
    assert list(verifier.outputs(FEW[0], uniforms)) == [(0,)] * 300
    verifier.close()
    # A program that reads all of its input before its first answer gets as much as a pipe holds.
    late = "requests = [json.loads(input()) for _ in range(300)]\n"
    code = f"{late}for request in requests: answer(request['id'], [0])\ninput()"
    verifier = process(python(CHAIN, code), randomness="seed")
    assert len(verifier.outputs(FEW[0], uniforms)) == 300
    verifier.close()
