"""Figures of recorded speeds and latencies: Leviathan et al.'s Tables 2 and 4, SpecTr's 1 to 3."""

import itertools

import pytest

from figures.leviathan.measured import table_2, table_4_measured
from figures.spectr.measured import table_1
from figures.spectr.measured import table_2 as spectr_table_2
from figures.spectr.measured import table_3 as spectr_table_3


def estimate(mean):
    return {"mean": mean, "low": mean - 0.25, "high": mean + 0.5}


def pair(factor):
    """Return what `benchmarks.papers` would record of one pair, in round numbers."""
    setups = [("baseline", "", ""), ("speculative", 1, 4), ("SpecTr", 8, 4)]
    return {
        "speed": [
            {
                "draft": "small",
                "algorithm": algorithm,
                "K": k,
                "L": gamma,
                "block_efficiency": estimate(2.0 + i),
                "speed": estimate(factor * (1.0 + i)),
            }
            for i, (algorithm, k, gamma) in enumerate(setups)
        ],
        "latency": [
            {
                "model": model,
                "length": length,
                "batch": batch,
                "mean": factor * length * batch * (1.0 if model == "target" else 0.125),
                "deviation": 0.5,
                "median_ms": 3.0 + length / 4 if model == "target" else 2.0,
                "runs": 7,
            }
            for model, length, batch in itertools.product(("target", "small"), (4, 8), (1, 2, 4, 8))
        ],
        "chains": [
            {
                "draft": draft,
                "temperature": temperature,
                "gamma": gamma,
                "alpha": estimate(0.5),
                "c": 0.25 * factor,
                "judging": 1.5,
                "speed": estimate(factor * gamma),
            }
            for draft, temperature, gamma in itertools.product(("small", "large"), (0, 1), (1, 3))
        ],
    }


@pytest.fixture
def records():
    return [{"shipped": pair(1.0), "deepened": pair(2.0)}]


def test_spectr_table_1_has_both_quantities_of_both_pairs(records):
    """Bug: speed stands where block efficiency should, or beside another row of the paper."""
    table = table_1(records)
    row = next(table.where(pair="deepened", algorithm="SpecTr").records())
    assert (row["K"], row["L"], row["block_efficiency"], row["speed"]) == (8, 4, 4.0, 6.0)
    assert (row["speed_low"], row["speed_high"]) == (5.75, 6.5)
    assert row["paper, other models: block efficiency"] == 3.1
    assert row["paper, other models: speed"] == 2.08
    assert table.where(pair="shipped")["block_efficiency"].tolist() == [2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("figure", "model", "share", "printed"),
    [(spectr_table_2, "target", 1.0, 1.42), (spectr_table_3, "small", 0.125, 0.18)],
)
def test_latencies_are_those_of_the_model_by_length_and_batch(
    records, figure, model, share, printed
):
    """Bug: the draft's table shows the target, or length and batch change places."""
    table = figure(records)
    assert set(table["model"]) == {model}
    assert len(table.rows) == 16
    cell = table.where(pair="deepened", length=4, batch=8)
    assert cell["mean"].tolist() == [2.0 * 4 * 8 * share]
    corner = table.where(pair="shipped", length=8, batch=8)
    assert corner["paper, other models"].tolist() == [printed]
    assert corner["median"].tolist() == [5.0 / 4.0 if model == "target" else 0.5]


def test_leviathan_table_2_keeps_every_setup(records):
    """Bug: a setup is lost, or its speed goes to another γ or target."""
    table = table_2(records)
    assert len(table.rows) == 16
    (row,) = table.where(target="deepened", draft="large", temperature=1, gamma=3).rows
    assert row[:-1] == ("deepened", "large", "164k", 1, 3, 0.5, 0.25, 1.0, 6.0, 5.75, 6.5)
    assert row[-1].startswith("a machine without a name")


def test_leviathan_table_4_expects_what_theorem_3_8_says(records):
    """Bug: γ + 1 and γ are mixed up, or the cost of judging is added and not put in place of 1."""
    table = table_4_measured(records)
    cell = table.where(target="deepened", draft="small", temperature=0, gamma=3)
    tokens = 1 + 0.5 + 0.25 + 0.125
    assert cell["EXP"][0] == pytest.approx(tokens / (3 * 0.5 + 1))
    assert cell["EXP with verification"][0] == pytest.approx(tokens / (3 * 0.5 + 1.5))
    assert cell["EMP"].tolist() == [6.0]


@pytest.mark.parametrize(
    "figure", [table_1, spectr_table_2, spectr_table_3, table_2, table_4_measured]
)
def test_figures_of_records_can_be_drawn_and_read_back(records, figure):
    """Bug: drawing needs a cell that the table does not have once it was written as CSV."""
    pytest.importorskip("matplotlib")
    table = figure(records)
    figure.draw(type(table).from_csv(table.to_csv()))
    assert figure.record == "papers"
