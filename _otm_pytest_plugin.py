"""The pytest plugin: one budget of false alarms for all Monte Carlo checks of a run.

pytest loads this plugin in every run where OTM is installed.  Therefore the plugin is a module
outside the package and imports only pytest.  Runs that do not use it lose no time, and a run that
measures coverage does not find `otm` loaded before the measurement begins.
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
    """Add the two options; each is also a setting of the configuration file."""
    group = parser.getgroup("otm", "Monte Carlo checks of the fixture otm_budget")
    for name, kind, metavar, text in (
        ("false_alarms", float, "P", "probability of any false alarm in a run (default: 1e-6)"),
        ("capacity", int, "N", "number of checks that share this probability (default: 10000)"),
    ):
        group.addoption(f"--otm-{name.replace('_', '-')}", type=kind, metavar=metavar, help=text)
        parser.addini(f"otm_{name}", text, default="")


@pytest.fixture(scope="session")
def otm_budget(pytestconfig: pytest.Config) -> Budget:
    """Share the allowed false alarms of this run among all Monte Carlo checks.

    Returns an `otm.testing.Budget`.  Its numbers come from the options ``--otm-false-alarms`` and
    ``--otm-capacity``, or from the settings ``otm_false_alarms`` and ``otm_capacity``.
    """
    from otm.testing import Budget

    settings: dict[str, Any] = {}
    for name, kind in (("false_alarms", float), ("capacity", int)):
        value = pytestconfig.getoption(f"otm_{name}")
        value = pytestconfig.getini(f"otm_{name}") if value is None else value
        if value == "":
            continue
        try:
            settings[name] = kind(value)
        except ValueError:
            raise pytest.UsageError(f"otm_{name} = {value}; it must be a number") from None
    return pytestconfig.stash.setdefault(_BUDGET, Budget(**settings))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the numbers of a pytest-xdist worker to the controller, which decides on the total."""
    config = session.config
    if hasattr(config, "workeroutput"):
        if _BUDGET in config.stash:
            config.workeroutput[_OUTPUT] = _numbers(config.stash[_BUDGET])
    elif (used := _used(config)) and used["checks"] > used["capacity"]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Receive the numbers of a pytest-xdist worker."""
    used = getattr(node, "workeroutput", {}).get(_OUTPUT)
    if used:
        node.config.stash.setdefault(_WORKERS, []).append(used)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the used part of the budget, if a check used it."""
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
    """Add up the numbers of this process and of the workers."""
    none: list[dict[str, Any]] = []
    parts = [*config.stash.get(_WORKERS, none)]
    if _BUDGET in config.stash:
        parts.append(_numbers(config.stash[_BUDGET]))
    if not any(part["checks"] for part in parts):
        return None
    return parts[0] | {name: sum(part[name] for part in parts) for name in ("checks", "draws")}


def _numbers(budget: Budget) -> dict[str, Any]:
    """Return the numbers of a budget in a form that can be sent between processes."""
    names = ("checks", "draws", "capacity", "level")
    return {name: getattr(budget, name) for name in names}
