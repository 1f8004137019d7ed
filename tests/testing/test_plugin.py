"""The plugin for pytest, in runs of its own as other projects have them."""

from __future__ import annotations

import importlib.util
import re

import pytest
import scipy.stats  # noqa: F401  (pytester forgets what a run imports; NumPy loads only once)

from otm.errors import InvalidParameterError
from otm.testing import Budget
from otm.testing.monte_carlo import Control

pytest_plugins = ["pytester"]

TESTS = """
from otm.testing import Control

LOADED = Control(lambda rng, draws: rng.random(draws) < 0.75, 0.75)


def fair(rng, draws):
    return rng.random(draws) < 0.5


def test_one(otm_budget):
    otm_budget.check_probability("one", fair, 0.5, delta=0.25, control=LOADED)


def test_two(otm_budget):
    otm_budget.check_probability("two", fair, 0.5, delta=0.25, control=LOADED)
"""

LINE = re.compile(
    r"otm: (\d+) of ([\d,]+) Monte Carlo checks, each at level (\S+): probability of any false "
    r"alarm in this run at most (\S+); ([\d,]+) draws"
)


def run(pytester: pytest.Pytester, *arguments: str, subprocess: bool = False) -> pytest.RunResult:
    """Run pytest with the plugin by its file's name, whether or not the package is installed."""
    plugins = ("-p", "no:otm", "-p", "_otm_pytest_plugin", "-p", "no:cacheprovider")
    start = pytester.runpytest_subprocess if subprocess else pytester.runpytest_inprocess
    return start(*plugins, *arguments)


def test_the_budget_is_shared_and_the_summary_says_what_was_used(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(TESTS)
    done = run(pytester, "-W", "error", subprocess=True)
    done.assert_outcomes(passed=2)
    (line,) = [found for text in done.outlines if (found := LINE.match(text))]
    checks, capacity, level, alarms, draws = line.groups()
    assert (checks, capacity) == ("2", "10,000")
    assert float(level) == 1e-10
    assert float(alarms) == 2e-10
    assert int(draws.replace(",", "")) > 100


def test_options_come_before_settings(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\notm_capacity = 5\notm_false_alarms = 1e-4\n")
    assert LINE.search("\n".join(run(pytester).outlines)).groups()[1:3] == ("5", "2e-05")  # type: ignore[union-attr]
    lines = "\n".join(run(pytester, "--otm-capacity", "4").outlines)
    assert LINE.search(lines).groups()[1:3] == ("4", "2.5e-05")  # type: ignore[union-attr]


def test_a_budget_that_is_used_up_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    done = run(pytester, "--otm-capacity", "1")
    done.assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize(
    "wrong", ["--otm-capacity=0", "--otm-false-alarms=2", "--otm-false-alarms=nan"]
)
def test_numbers_out_of_range_are_errors(wrong: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    run(pytester, wrong).assert_outcomes(errors=2)


def test_a_setting_that_is_no_number_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\notm_capacity = many\n")
    done = run(pytester)
    done.assert_outcomes(errors=2)
    done.stdout.fnmatch_lines(["*otm_capacity = many; it must be a number*"])


def test_whoever_does_not_use_it_does_not_notice(pytester: pytest.Pytester) -> None:
    """Bug: NumPy loaded in every run of every project; a summary of nothing."""
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_loaded():
            assert not {"otm", "numpy", "hypothesis"} & set(sys.modules)
        """
    )
    done = run(
        pytester, "-p", "no:hypothesispytest", "--strict-markers", "-W", "error", subprocess=True
    )
    done.assert_outcomes(passed=1)
    assert not [line for line in done.outlines if line.startswith("otm")]


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="needs pytest-xdist")
def test_workers_of_xdist_share_one_budget(pytester: pytest.Pytester) -> None:
    """Bug: the capacity once for each worker, so that eight have eight times the false alarms."""
    pytester.makepyfile(TESTS)
    options = ("-p", "xdist", "-n", "2", "--dist", "each", "--otm-capacity", "3")
    done = run(pytester, *options)  # which starts the two workers alone
    done.assert_outcomes(passed=4)
    done.stdout.fnmatch_lines(["*otm: 4 of 3 *declare a larger --otm-capacity*"])
    assert done.ret == pytest.ExitCode.TESTS_FAILED


def test_draws_are_counted_with_those_of_the_controls() -> None:
    budget = Budget()
    drawn = []

    def coin(rng, draws):  # type: ignore[no-untyped-def]
        drawn.append(draws)
        return rng.random(draws) < 0.5

    budget.check_probability(
        "a coin", coin, 0.5, delta=0.25, control=Control(lambda r, n: r.random(n) < 0.75, 0.75)
    )
    assert (budget.checks, budget.draws) == (1, 2 * drawn[0])


@pytest.mark.parametrize("wrong", [{"false_alarms": 0.0}, {"false_alarms": 1.0}, {"capacity": 0}])
def test_budgets_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidParameterError, match=next(iter(wrong))):
        Budget(**wrong)  # type: ignore[arg-type]
