"""Tokens per step of rules that verify whole paths, in a report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from otm.errors import InvalidParameterError, UnknownMethodError
from otm.gain import Settings, from_files, from_models, report
from otm.gain.reports.blocks import measure_all
from otm.gain.reports.sampled_drafts import memory_in_words, sample_drafts, step_starts
from otm.gain.reports.summary import Summary
from tests.gain.reports.instruct import write_model

for package in ("joblib", "jinja2", "matplotlib"):
    pytest.importorskip(package)
pytest.importorskip("transformers")

TEXT = "in the beginning\n\ngod created\n\nthe earth was"


def test_steps_begin_after_the_accepted_drafts_and_one_token() -> None:
    """Catches steps that miss their last token, or go on in the next window."""
    sure = {"ratio": np.full((10, 1), 2.0)}
    assert step_starts(sure, np.array([0, 7, 10]), 2) == [0, 3, 6, 7]
    never = {"optimum": np.zeros((4, 1, 1))}
    assert step_starts(never, np.array([0, 4]), 2) == [0, 1, 2, 3]


def test_names_of_path_rules_among_the_rules_are_moved() -> None:
    """Catches the error that walk and keep cannot be used, and a report without other rules."""
    settings = Settings(rules=("walk and keep", "optimal"), path_rules=("block",))
    assert settings.rules == ("optimal",)
    assert settings.path_rules == ("walk and keep", "block")
    assert len(Settings(rules=("traversal",)).rules) == 3
    with pytest.raises(UnknownMethodError, match="there are block, traversal"):
        Settings(path_rules=("optimal",))


def make_report(tmp_path: Path) -> Summary:
    folders = [write_model(tmp_path / str(width), width) for width in (8, 16)]
    text = tmp_path / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    rules = ("optimal", "block", "branch and keep", "walk and keep")
    settings = Settings(ks=(1, 2), rules=rules, contexts=5)
    pair = from_models(*folders, text, window=9)
    return report(pair, tmp_path / "out", settings, gammas=(1, 3), workers=1)


def test_a_report_has_the_tokens_of_path_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches another rule's numbers in a row, and drafts that are sampled again in each run."""
    summary = make_report(tmp_path)
    rows = {(r["rule"], r["K"], r["gamma"]): r["mean"] for r in summary.sampled_drafts}
    assert {row[:2] for row in rows} == {
        ("optimal", 1), ("optimal", 2), ("block", 1), ("branch and keep", 1),
        ("branch and keep", 2), ("walk and keep", 1), ("walk and keep", 2),
    }  # fmt: skip
    assert rows["block", 1, 3] == rows["walk and keep", 1, 3]
    # Two formulas of the same number can be rounded otherwise.
    assert rows["block", 1, 1].mean == pytest.approx(rows["optimal", 1, 1].mean, rel=1e-12)
    assert rows["branch and keep", 1, 3] == rows["block", 1, 3]
    for rule in ("walk and keep", "branch and keep"):
        assert rows[rule, 2, 3].mean > rows[rule, 1, 3].mean
    assert rows["walk and keep", 2, 3] != rows["branch and keep", 2, 3]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert str(rows["walk and keep", 2, 3]) in page
    monkeypatch.setattr("otm.gain.reports.draft_sampler.stream_recordings", None)
    assert make_report(tmp_path).sampled_drafts == summary.sampled_drafts


def test_recorded_scores_have_no_drafts_for_path_rules(tmp_path: Path) -> None:
    """Catches a rule that is left out silently."""
    for name in ("draft", "target"):
        np.save(tmp_path / f"{name}.npy", np.zeros((3, 4), dtype=np.float32))
    source = from_files(tmp_path / "draft.npy", tmp_path / "target.npy")
    with pytest.raises(InvalidParameterError, match="walk and keep need drafts"):
        report(source, tmp_path / "out", Settings(rules=("walk and keep",)))


def test_the_memory_is_known_before_drafts_are_sampled() -> None:
    """Catches a size that ignores K or γ: 4 chains of 4 drafts have 17 and 13 distributions."""
    text = memory_in_words(262_144, Settings(ks=(4,)), (4,))
    assert f"{30 * 8 * 262_144 / 1e6:,.1f} MB" in text
    assert "4 contexts in memory" in text


def test_the_memory_of_trees_is_known_before_they_are_drafted() -> None:
    """Catches a tree of 64 drafts that counts as a chain: it has up to 64 and 65 distributions."""
    text = memory_in_words(262_144, Settings(ks=(4,), nodes=(64, 8)), (4,))
    assert f"{129 * 8 * 262_144 / 1e6:,.1f} MB" in text


def test_the_bound_is_at_the_contexts_of_the_drafts(tmp_path: Path) -> None:
    """Catches a bound at other positions, which can lie below rules: for γ = 1 it is 1 + α_K."""
    folders = [write_model(tmp_path / str(width), width) for width in (8, 16)]
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    pair = from_models(*folders, tmp_path / "text.txt", window=9)
    settings = Settings(ks=(1, 2), rules=("optimal", "walk and keep"))
    measured = measure_all(pair, settings, tmp_path / "out")
    means = sample_drafts(pair, measured, settings, (1, 3), tmp_path / "out")
    assert means is not None
    places = step_starts(measured, pair.starts, 3)
    assert 1 < len(places) < pair.prompts.size
    for j, k in enumerate(settings.ks):
        alphas = measured["optimum"][places, 0, j]
        assert means["bound", k, 1].mean == pytest.approx(1 + alphas.mean(), abs=1e-6)
        assert means["bound", k, 3].mean > means["bound", k, 1].mean


def test_drafts_of_one_prompt_have_no_bound(tmp_path: Path) -> None:
    """Catches an error of the bound, which needs two prompts, that ends the whole report."""
    folders = [write_model(tmp_path / str(width), width) for width in (8, 16)]
    (tmp_path / "text.txt").write_text("in the beginning", encoding="utf-8")
    pair = from_models(*folders, tmp_path / "text.txt", window=9)
    settings = Settings(ks=(1,), rules=("optimal", "block"))
    measured = measure_all(pair, settings, tmp_path / "out")
    means = sample_drafts(pair, measured, settings, (2,), tmp_path / "out")
    assert means is not None
    assert [setup.rule for setup in means] == ["optimal", "block"]
