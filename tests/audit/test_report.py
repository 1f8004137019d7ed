"""A report can be read by people and machines, and names known mistakes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from otm.audit import Report, lossless
from otm.audit.diagnose import diagnosis
from otm.audit.diagnose.known_bugs import KNOWN_BUGS
from otm.audit.instances import INSTANCES, rows_of

FEW = [INSTANCES[name] for name in ("two tokens", "three tokens", "equal")]


def no_residual(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    (x,), (coin, residual, bonus) = draft_tokens, uniforms
    if coin * draft_probs[0][x] < target_probs[0][x]:
        return [x, _draw(target_probs[1], bonus)]
    return [_draw(target_probs[0], residual)]


def _draw(law: Any, uniform: Any) -> int:
    return int(np.searchsorted(np.cumsum(law), uniform, side="right"))


def audit(method: str) -> Report:
    return lossless(no_residual, method=method, instances=FEW, examples=0)


@pytest.mark.parametrize("method", ["exact paths", "breakpoints", "Monte Carlo"])
def test_a_known_mistake_is_named_and_no_other(method: str) -> None:
    """Bug: a diagnosis by the verdict, or by one instance, instead of by the distributions."""
    names = [found.name for found in audit(method).diagnoses]
    assert "no residual" in names
    assert len(names) <= (2 if method == "Monte Carlo" else 1)


def test_an_unknown_mistake_has_no_name() -> None:
    def unheard_of(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        return [len(target_probs[0]) - 1 - int(draft_tokens[0])]

    report = lossless(unheard_of, instances=FEW, examples=0)
    assert report.diagnoses == ()
    assert report.nearest is None
    assert "no known mistake has this distribution" in str(report)


def test_the_nearest_mistake_is_named_where_none_fits() -> None:
    """Bug: a mistake like a known one, but of another size, goes without a word."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        (x,), (coin, residual, bonus) = draft_tokens, uniforms
        if coin * draft_probs[0][x] < target_probs[0][x]:
            weights = target_probs[1] ** 3  # the known mistake has squares
            return [x, _draw(weights / weights.sum(), bonus)]
        rest = np.maximum(target_probs[0] - draft_probs[0], 0)
        return [_draw(rest / rest.sum(), residual)]

    report = lossless(verify, instances=FEW, examples=0)
    assert report.verdict == "not lossless"
    assert report.diagnoses == ()
    assert report.nearest is not None
    assert report.nearest.diagnosis.name == "temperature of the bonus"
    assert 0 < 2 * report.nearest.tv_distance < report.nearest.from_target
    assert "nearest known mistake: sampling parameters of the last token alone (temp" in str(report)
    assert report.to_dict()["nearest"]["diagnosis"]["name"] == "temperature of the bonus"


def test_the_diagnosis_asks_for_all_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a mistake is named although it has another distribution somewhere, or is none there."""
    bugs = [bug for bug in KNOWN_BUGS if bug.name in {"no residual", "u ≤ ratio"}]
    monkeypatch.setattr(diagnosis, "KNOWN_BUGS", bugs)
    assert [found.name for found in audit("exact paths").diagnoses] == ["no residual"]
    equal = lossless(no_residual, instances=FEW[2:], examples=0)
    assert equal.lossless
    assert equal.diagnoses == ()


def test_the_text_is_short_and_says_what_matters() -> None:
    text = str(audit("exact paths"))
    assert len(text.splitlines()) <= 25
    for part in (
        "no_residual: not lossless, with a distance to the target of up to ",
        "method: exact paths, 3 pairs of models",
        "target: (1/4, 3/4)",
        "draft: (3/4, 1/4)",
        "drafts: 0",
        "worst prefix: (none) (probability 1)",
        "same distribution as: no residual",
    ):
        assert part in text
    assert "false alarms: probability at most 1e-06" in str(audit("Monte Carlo"))


@pytest.mark.parametrize("method", ["exact paths", "Monte Carlo"])
def test_the_dictionary_is_json(method: str) -> None:
    """Bug: fractions or NumPy's numbers in what is meant for JSON."""
    report = audit(method)
    given = report.to_dict()
    assert json.loads(json.dumps(given)) == given
    assert given["verdict"] == "not lossless"
    assert given["counterexample"]["target"] == [[[], ["1/4", "3/4"]]]
    assert set(given) == set(Report.__dataclass_fields__)


def test_rows_are_listed_once() -> None:
    """Bug: a counterexample whose distributions cannot be read off the report."""
    instance = INSTANCES["two drafts"]
    for model, rows in zip((instance.target, instance.draft), rows_of(instance), strict=True):
        assert list(rows)[:4] == [(), (0,), (1,), (2,)]
        for path in [(1, 2), (2, 1), (0, 2)]:
            assert rows.get(path, rows[path[1:]]).tolist() == model.probs((0, *path)).tolist()
