"""Reading recorded steps: all forms say the same, and what is wrong is one error with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otm.audit import recorded
from otm.errors import InvalidInputError, InvalidParameterError


def some_steps() -> list[dict[str, Any]]:
    """Make steps of two drafts, some of them cut off, one token never possible at first."""
    rng = np.random.default_rng(4)
    steps = []
    for number in range(60):
        target, draft = rng.dirichlet(np.ones(4), size=3), rng.dirichlet(np.ones(4), size=2)
        target[0] = [0, 0.25, 0.25, 0.5]
        drafts = rng.integers(1, 4, size=2).tolist()
        output = [*drafts, 3][: number % 3 + 1]
        steps.append(
            {"target_probs": target, "draft_probs": draft, "drafts": drafts, "output": output}
        )
    return steps


def test_dense_sparse_and_files_give_one_report(tmp_path: Path) -> None:
    """Bug: a form of the same steps is read differently, such as a row that belongs to padding."""
    steps = some_steps()

    def sparse(rows: list[Any]) -> list[dict[str, float]]:
        return [{str(t): p for t, p in reversed([*enumerate(row.tolist())]) if p} for row in rows]

    as_json = [
        {
            "target_probs": sparse(step["target_probs"]),
            "draft_probs": sparse(step["draft_probs"]),
            "drafts": step["drafts"],
            "output": step["output"],
        }
        for step in steps
    ]
    lines = tmp_path / "steps.jsonl"
    lines.write_text("\n\n".join(map(json.dumps, as_json)))

    def padded(name: str, width: int) -> Any:
        return np.array([[*step[name], *[-1] * (width - len(step[name]))] for step in steps])

    probs = {name: np.array([s[name] for s in steps]) for name in ("target_probs", "draft_probs")}
    arrays = tmp_path / "steps.npz"
    np.savez_compressed(arrays, **probs, drafts=padded("drafts", 2), output=padded("output", 3))
    reports = [
        json.dumps(recorded(form, name="one").to_dict())
        for form in (steps, iter(steps), lines, str(arrays))
    ]
    assert len({round_trip(text) for text in reports}) == 1
    assert recorded(lines).name == "file 'steps.jsonl'"


def round_trip(text: str) -> str:
    """Round numbers: sums in another order differ in their last digits."""
    return json.dumps(json.loads(text, parse_float=lambda digits: round(float(digits), 8)))


def test_half_precision_has_its_own_rounding(tmp_path: Path) -> None:
    rows = np.full((2, 1, 3), 1 / 3, dtype=np.float16)
    np.savez(tmp_path / "half.npz", target_probs=rows, output=[[0], [1]])
    assert recorded(tmp_path / "half.npz").rounding == 0.01


GOOD = {"target_probs": [[0.5, 0.5], [1, 0]], "drafts": [1], "output": [1, 0]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output": []}, "the output is empty"),
        ({"output": [2]}, "token 2, but the rows have 2 tokens"),
        ({"output": [0.5]}, "give a list of tokens"),
        ({"output": [-1]}, "give a list of tokens"),
        ({"output": [True]}, "give a list of tokens"),
        ({"output": [0, 0]}, "differs from the drafts"),
        ({"output": [1, 0, 0]}, "differs from the drafts"),
        ({"drafts": None, "output": [1, 0, 0]}, "2 target rows for 3 tokens without drafts"),
        ({"drafts": [1, 1]}, "2 target rows for 2 drafts"),
        ({"draft_probs": []}, "2 target rows and 0 draft rows for 1 drafts"),
        ({"draft_probs": [[0.5, 0.25, 0.25]]}, "rows of 2 and 3 tokens"),
        ({"drafts": None, "draft_probs": [[0.5, 0.5]]}, "no draft rows"),
        ({"target_probs": [[0.5, 0.4], [1, 0]]}, "row 0 sums to 0.9"),
        ({"target_probs": [[1.5, -0.5], [1, 0]]}, "row 0 has an entry that is not a probability"),
        ({"target_probs": [{"0": 1}, {"x": 1}]}, "row 1 is not a distribution"),
        ({"target_probs": [{"0": 1}, {"00": 0.5, "0": 0.5}]}, "a token is below 0 or occurs twice"),
        ({"target_probs": [1, 2]}, "row 0 is not a distribution"),
        ({"target_probs": 1}, "give a list of rows"),
        ({"extra": 1}, "it must be an object with"),
    ],
)
def test_a_bad_step_is_one_error_that_names_the_line(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    lines = tmp_path / "bad.jsonl"
    lines.write_text("\n".join(map(json.dumps, [GOOD, GOOD, GOOD | changes])))
    with pytest.raises(InvalidInputError, match=message) as caught:
        recorded(lines)
    assert str(caught.value).startswith("line 3 of file 'bad.jsonl'")
    with pytest.raises(InvalidInputError, match="step 1"):
        recorded([GOOD, GOOD | changes])


def test_bad_files_and_arguments_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "text.jsonl").write_text("{nonsense")
    np.savez(tmp_path / "other.npz", output=[[1]])
    np.savez(tmp_path / "shape.npz", output=[[1]], target_probs=[[0.5, 0.5]])
    np.savez(tmp_path / "uneven.npz", output=[[1]], target_probs=np.full((2, 1, 2), 0.5))
    for name, message in {
        "empty.jsonl": "there are no steps",
        "text.jsonl": "line 1 of file 'text.jsonl' is not JSON",
        "none.jsonl": "cannot be found",
        "other.npz": "it needs target_probs and output",
        "shape.npz": r"it must be \[steps, rows, V\] of floats",
        "uneven.npz": "have different numbers of steps",
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            recorded(tmp_path / name)
    for steps in (3, GOOD, None):
        with pytest.raises(InvalidInputError, match="give the path of a file, or the steps"):
            recorded(steps)
    for option in ({"false_alarms": 0}, {"delta": 1}, {"rounding": -1}):
        with pytest.raises(InvalidParameterError):
            recorded([GOOD], **option)  # type: ignore[arg-type]
