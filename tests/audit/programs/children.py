"""Small programs for the tests, in Python, so that the tests run everywhere."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

CHAIN = """
import json, os, random, sys, time
from itertools import accumulate
from bisect import bisect_right

def answer(number, tokens):
    print(json.dumps({"id": number, "tokens": tokens}), flush=True)

def sample(weights, u):
    sums = list(accumulate(weights))
    return bisect_right(sums, u * sums[-1])

def verify(target, draft, tokens, uniforms):
    for i, x in enumerate(tokens):
        if uniforms[i] * draft[i][x] >= target[i][x]:
            residual = [max(t - d, 0) for t, d in zip(target[i], draft[i])]
            return [*tokens[:i], sample(residual, uniforms[-1])]
    return [*tokens, sample(target[-1], uniforms[-1])]
"""
"""The functions of a right verifier of one chain."""

EACH = "for request in map(json.loads, sys.stdin):\n    "
"""Beginning of a loop over all requests."""

RIGHT = 'number = request.pop("id"); answer(number, verify(**request))'

LOOP = (
    CHAIN
    + """
def ask(**message):
    print(json.dumps(message), flush=True)
    return json.loads(input())

def decode(prompt, gamma, max_tokens, **_):
    text = list(prompt)
    while len(text) < len(prompt) + max_tokens:
        start, draft = len(text), []
        uniforms = ask(uniforms=2 * gamma + 1)["uniforms"]
        for i in range(gamma):
            draft.append(ask(model="draft", tokens=text)["probs"])
            text.append(sample(draft[i], uniforms[i]))
        target = ask(model="target", tokens=text, rows=gamma + 1)["probs"]
        text[start:] = verify(target, draft, text[start:], uniforms[gamma:])
    return text[len(prompt):len(prompt) + max_tokens]

while True:
    try:
        request = json.loads(input())
    except EOFError:
        break
    number = request.pop("id"); answer(number, decode(**request))
"""
)
"""A right decoding loop."""


def python(*code: str) -> list[str]:
    """Return the command that runs code in Python, without site packages, which start slowly."""
    return [sys.executable, "-I", "-S", "-c", "".join(code)]


def is_running(pid: int) -> bool:
    """Return whether a process exists, also as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_pid(file: Path, seconds: float = 20) -> int:
    """Return the process number that a child writes to a file."""
    deadline = time.monotonic() + seconds
    while not (file.exists() and file.read_text().endswith("\n")):
        assert time.monotonic() < deadline, "the child has not started"
        time.sleep(0.02)
    return int(file.read_text())
