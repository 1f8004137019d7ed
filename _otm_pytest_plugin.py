"""The plugin for pytest: one budget of false alarms for all Monte Carlo checks of a run.

pytest loads it in every run wherever OTM is installed.  So it lies beside the package and not in
it, and imports pytest alone: whoever does not use it pays nothing, and a run that measures coverage
does not find `otm` loaded before the measurement begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from otm.testing import Budget

_BUDGET = pytest.StashKey["Budget"]()
_WORKERS = pytest.StashKey["list[dict[str, Any]]"]()
_OUTPUT = "otm_budget"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options, each also a setting of the configuration file."""
    group = parser.getgroup("otm", "Monte Carlo checks of the fixture otm_budget")
    for name, kind, metavar, text in (
        ("false_alarms", float, "P", "probability of any false alarm in a run (default: 1e-6)"),
        ("capacity", int, "N", "number of checks that share it (default: 10000)"),
    ):
        group.addoption(f"--otm-{name.replace('_', '-')}", type=kind, metavar=metavar, help=text)
        parser.addini(f"otm_{name}", text, default="")


@pytest.fixture(scope="session")
def otm_budget(pytestconfig: pytest.Config) -> Budget:
    """Share the false alarms of this run among all Monte Carlo checks.

    An `otm.testing.Budget`; its numbers are those of the options ``--otm-false-alarms`` and
    ``--otm-capacity``, or of the settings ``otm_false_alarms`` and ``otm_capacity``.
    """
    from otm.testing import Budget

    settings: dict[str, Any] = {}
    for name, kind in (("false_alarms", float), ("capacity", int)):
        given = pytestconfig.getoption(f"otm_{name}")
        given = pytestconfig.getini(f"otm_{name}") if given is None else given
        if given == "":
            continue
        try:
            settings[name] = kind(given)
        except ValueError:
            raise pytest.UsageError(f"otm_{name} = {given}; it must be a number") from None
    return pytestconfig.stash.setdefault(_BUDGET, Budget(**settings))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what a worker of pytest-xdist used to its controller, which adds up and judges."""
    config = session.config
    if hasattr(config, "workeroutput"):
        if _BUDGET in config.stash:
            config.workeroutput[_OUTPUT] = _numbers(config.stash[_BUDGET])
    elif (used := _used(config)) and used["checks"] > used["capacity"]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker of pytest-xdist used."""
    used = getattr(node, "workeroutput", {}).get(_OUTPUT)
    if used:
        node.config.stash.setdefault(_WORKERS, []).append(used)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say how much of the budget the run used, if it used any."""
    used = _used(config)
    if not used:
        return
    checks, capacity, level = used["checks"], used["capacity"], used["level"]
    line = (
        f"otm: {checks:,} of {capacity:,} Monte Carlo checks, each at level {level:.2g}: "
        f"probability of any false alarm in this run at most {checks * level:.2g}; "
        f"{used['draws']:,} draws"
    )
    if checks > capacity:
        line += f". ERROR: more checks than {capacity:,}; declare a larger --otm-capacity"
    terminalreporter.write_line(line, red=checks > capacity)


def _used(config: pytest.Config) -> dict[str, Any] | None:
    """Add up what this process and the workers used."""
    none: list[dict[str, Any]] = []
    parts = [*config.stash.get(_WORKERS, none)]
    if _BUDGET in config.stash:
        parts.append(_numbers(config.stash[_BUDGET]))
    if not any(part["checks"] for part in parts):
        return None
    return parts[0] | {name: sum(part[name] for part in parts) for name in ("checks", "draws")}


def _numbers(budget: Budget) -> dict[str, Any]:
    """Return what a budget has given out, as numbers that travel between processes."""
    names = ("checks", "draws", "capacity", "level")
    return {name: getattr(budget, name) for name in names}
