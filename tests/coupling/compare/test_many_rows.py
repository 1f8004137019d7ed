"""`otm.compare` over rows and several k: each mean against plans built one by one."""

import csv
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import otm
from otm.coupling import KSeq, RecursiveRejection
from otm.coupling.compare.many_rows import MOST_ROUNDS
from otm.decoding import spectr
from otm.errors import (
    InvalidDraftCountError,
    InvalidInputError,
    InvalidParameterError,
    UnknownMethodError,
)
from otm.gain import PairedMeans, Settings, Setup
from otm.gain.reports.pairs import measure_pair
from otm.models import TableModel
from otm.problem import Problem

Rows = npt.NDArray[np.float64]

KS = [1, 2, 5]


@pytest.fixture(autouse=True)
def _no_windows() -> Iterator[None]:
    """Close what pyplot opened."""
    yield
    pytest.importorskip("matplotlib.pyplot").close("all")


@pytest.fixture(scope="module")
def rows() -> tuple[Rows, Rows]:
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.ones(6), size=(2, 2)), rng.dirichlet(np.ones(6), size=(2, 2))


def means_of(*arguments: object, **options: object) -> PairedMeans:
    means = otm.compare(*arguments, **options)  # type: ignore[arg-type]
    assert isinstance(means, PairedMeans)
    return means


def test_every_row_counts_once_for_every_k(rows: tuple[Rows, Rows]) -> None:
    """Catches rows or k that are mixed up; the caps of all k come from one histogram."""
    means = means_of(*rows, KS)
    assert [setup.k for setup in means] == KS * 3
    draft, target = (side.reshape(-1, 6) for side in rows)
    for name, kind in (("k-Seq", KSeq), ("recursive rejection", RecursiveRejection)):
        for k in KS:
            alone = [kind(Problem(*pair, k)).acceptance for pair in zip(draft, target, strict=True)]
            np.testing.assert_allclose(means.values[Setup(name, k, 1)], alone, atol=1e-12)
    best = [means.values[Setup("optimal", k, 1)] for k in KS]
    np.testing.assert_allclose(best, otm.alpha(draft, target, [[k] for k in KS]), atol=1e-12)


def test_own_rules_and_rules_with_limits(rows: tuple[Rows, Rows]) -> None:
    means = means_of(*rows, KS, rules={"mine": KSeq}) | means_of(
        *rows, KS, rules=["otm.coupling:KSeq", "SpecHub", "k-Seq"]
    )
    for k in KS:
        for name in ("mine", "otm.coupling:KSeq"):
            assert means[name, k, 1].mean == pytest.approx(means["k-Seq", k, 1].mean, abs=1e-12)
    assert [setup.k for setup in means if setup.rule == "SpecHub"] == [2]
    with pytest.raises(InvalidParameterError, match=r"SpecHub takes 2 drafts, not \[1, 3\]"):
        means_of(*rows, [1, 3], rules=["SpecHub"])


def test_more_drafts_than_rounds_are_computed_for(rows: tuple[Rows, Rows]) -> None:
    k = MOST_ROUNDS + 1
    means = means_of(*rows, [k])
    alone = KSeq(Problem(rows[0][1, 0], rows[1][1, 0], k)).acceptance
    assert means.values[Setup("k-Seq", k, 1)][2] == pytest.approx(alone, abs=1e-12)


def test_one_pair_and_fractions() -> None:
    half = Fraction(1, 2)
    means = means_of([half, half], [Fraction(1, 4), Fraction(3, 4)], [1, 2])
    assert means["optimal", 1, 1].mean == 0.75
    assert "1 context, which alone has no interval" in repr(means)


def test_prompts_widen_intervals(rows: tuple[Rows, Rows]) -> None:
    """Catches rows of a prompt that are counted as independent."""
    draft, target = (np.repeat(side.reshape(-1, 6), 3, axis=0) for side in rows)
    free = means_of(draft, target, [2])["optimal", 2, 1]
    of_prompts = means_of(draft, target, [2], prompts=np.repeat(np.arange(4), 3))["optimal", 2, 1]
    assert free.mean == pytest.approx(of_prompts.mean)
    assert free.high < of_prompts.high


def test_what_is_refused(rows: tuple[Rows, Rows]) -> None:
    with pytest.raises(InvalidInputError, match="3 rules, 0 numbers of drafts and 4 rows"):
        otm.compare(*rows, [])
    with pytest.raises(InvalidDraftCountError, match="k = 0"):
        otm.compare(*rows, [2, 0])
    with pytest.raises(InvalidInputError, match="prompt of each of the 4 rows"):
        otm.compare(*rows, [2], prompts=[0, 1])
    with pytest.raises(InvalidInputError, match="prompts are for rows"):
        otm.compare([0.5, 0.5], [0.5, 0.5], 2, prompts=[0])
    with pytest.raises(TypeError):
        _ = means_of(*rows, [2]) | 3  # type: ignore[operator]
    with pytest.raises(UnknownMethodError, match="'no_such:Plan' cannot be imported"):
        otm.compare(*rows, [2], rules=["no_such:Plan"])
    with pytest.raises(InvalidParameterError, match="'math:pi' is a float"):
        otm.compare(*rows, [2], rules=["math:pi"])


def test_tables_and_pictures(rows: tuple[Rows, Rows], tmp_path: Path) -> None:
    means = means_of(*rows, KS)
    means.to_csv(tmp_path / "means.csv")
    with (tmp_path / "means.csv").open() as file:
        first, *_ = csv.DictReader(file)
    assert first["rule"] == "optimal"
    assert float(first["high"]) == means["optimal", 1, 1].high
    axes = means.plot()
    assert [line.get_label() for line in axes.lines] == [*dict.fromkeys(x.rule for x in means)]
    assert means.plot(axes) is axes
    assert len(axes.lines) == 6
    assert means._repr_html_().count("<tr>") == 4
    with pytest.raises(InvalidInputError, match="cannot be written"):
        means.to_csv(tmp_path / "none" / "means.csv")
    with pytest.raises(InvalidInputError, match="cannot be written"):
        means.to_csv(tmp_path)  # a folder; nothing stays beside it
    assert not list(tmp_path.parent.glob("*.part"))
    one = otm.compare(rows[0][0, 0], rows[1][0, 0], 2)
    one.to_csv(tmp_path / "rules.csv")
    assert (tmp_path / "rules.csv").read_text().startswith("rule,k,acceptance,optimum,")
    assert len(one.plot().patches) == 14


def test_a_rule_of_ones_own_by_name_in_loop_and_report() -> None:
    """The workers of a report import such a rule by its name."""
    draft, target = [0.75, 0.25], [0.25, 0.75]
    found = measure_pair(
        np.array(draft), np.array(target), Settings((2,), rules=("k-Seq", "otm.coupling:KSeq"))
    )
    np.testing.assert_allclose(*found["acceptance"], atol=1e-12)
    models = TableModel({(): target}), TableModel({(): draft})
    texts = [
        spectr(*models, [[0]], k=3, gamma=2, max_tokens=9, seed=1, rule=rule).sequences
        for rule in ("k-Seq", "otm.coupling:KSeq")
    ]
    assert texts[0] == texts[1]
    with pytest.raises(UnknownMethodError, match="cannot be imported"):
        Settings(rules=("no_such:Plan",))
