"""``otm audit``: whether a verifier is lossless."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from otm._core.display.text import shown
from otm._core.numbers import check_name
from otm.cli.output import JsonOption, print_json, print_table
from otm.errors import InvalidInputError

if TYPE_CHECKING:
    from otm.audit import RecordedReport, Report, ServerReport

NOT_LOSSLESS = 1
UNDECIDED = 3


def audit(
    verifier: Annotated[
        str | None,
        Argument(
            metavar="MODULE:FUNCTION",
            help="What to audit; the module may be in the current folder. With --known-bugs, the "
            "name of a bug.",
        ),
    ] = None,
    *,
    kind: Annotated[
        str | None,
        Option(
            help="chain, token, loop, chains, tree, batch, stateful or windowed; inferred for a "
            "chain and a rule."
        ),
    ] = None,
    method: Annotated[
        str | None,
        Option(help='"exact paths", "breakpoints" or "Monte Carlo"; the first that applies.'),
    ] = None,
    false_alarms: Annotated[
        float, Option(help="Bound on the probability that a lossless verifier is rejected.")
    ] = 1e-6,
    delta: Annotated[
        float | None,
        Option(help="Deviation (TV) that Monte Carlo must detect, 0.03; with --recorded 0.05."),
    ] = None,
    examples: Annotated[int, Option(help="Number of pairs of models to search through.")] = 50,
    max_runs: Annotated[int, Option(help="Most calls of the verifier.")] = 1_000_000,
    max_seconds: Annotated[
        float | None, Option(help="Longest time of the audit in seconds, about; 40 if left out.")
    ] = None,
    vocabulary: Annotated[
        int | None, Option(help="Number of tokens of more pairs of models.")
    ] = None,
    gamma: Annotated[int | None, Option(help="Drafts of a chain in more pairs of models.")] = None,
    prompt: Annotated[
        str | None, Option(help='Prompt of more pairs of models, such as "0,1,0".')
    ] = None,
    seed: Annotated[int, Option(help="Seed of the audit's random numbers.")] = 0,
    recorded: Annotated[
        Path | None,
        Option(help="A file of steps that an engine recorded, in place of a verifier."),
    ] = None,
    rounding: Annotated[
        float | None,
        Option(help="With --recorded: largest relative error of a probability; else by its type."),
    ] = None,
    slow: Annotated[
        bool, Option("--slow", help="For code that takes hundredths of a second or more to run.")
    ] = False,
    known_bugs: Annotated[
        bool, Option("--known-bugs", help="List the known bugs, or audit the one named.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Find out whether a verifier is lossless: whether its output has the target's distribution.

    A chain is a function of target_probs, draft_probs, draft_tokens and uniforms; a token rule one
    of target_probs, draft_probs, drafts and uniforms, or a rule of otm.coupling; a loop one of
    target, draft, prompt, gamma, max_tokens and uniforms; docs/audit.md has the other kinds. In
    place of uniforms it may take rng, generator or seed; a function that takes none of them has its
    own randomness.

    The module is imported, which runs it.

    With --recorded nothing is run: FILE has steps, with the distributions of both models, as
    docs/audit.md describes them.

    otm audit server URL audits a server: see otm audit server --help.

    Exit status: 0 lossless on everything tried, 1 not lossless, 2 an error, 3 undecided, 70 a
    bug of OTM.
    """
    from otm.audit import lossless

    if recorded is not None:
        if verifier is not None or known_bugs or kind is not None or method is not None:
            raise InvalidInputError("--recorded FILE takes no verifier, kind or method")
        return _recorded(recorded, false_alarms, delta, rounding, as_json=json)
    if rounding is not None:
        raise InvalidInputError("--rounding goes with --recorded FILE")
    if verifier is None:
        if not known_bugs:
            raise InvalidInputError(
                "nothing to audit; name a MODULE:FUNCTION, such as otm.coupling:KSeq"
            )
        _list_known_bugs(as_json=json)
        return 0
    seconds: dict[str, Any] = {} if max_seconds is None else {"max_seconds": max_seconds}
    # what the verifier prints must not end up in the report
    with contextlib.redirect_stdout(sys.stderr):
        adapter = _known_bug(verifier) if known_bugs else _imported(verifier)
        report = lossless(
            adapter,
            kind=kind,
            method=method,
            examples=examples,
            false_alarms=false_alarms,
            delta=0.03 if delta is None else delta,
            max_runs=max_runs,
            vocabulary=vocabulary,
            gamma=gamma,
            prompt=None if prompt is None else _tokens(prompt),
            seed=seed,
            slow=slow,
            **seconds,
        )
    return print_report(report, as_json=json)


def _recorded(
    file: Path, false_alarms: float, delta: float | None, rounding: float | None, *, as_json: bool
) -> int:
    from otm.audit import recorded

    delta = 0.05 if delta is None else delta
    report = recorded(file, false_alarms=false_alarms, delta=delta, rounding=rounding)
    return print_report(report, as_json=as_json)


def print_report(report: Report | RecordedReport | ServerReport, *, as_json: bool) -> int:
    """Print a report and return its status."""
    if as_json:
        print_json(report.to_dict())
    else:
        print(report)
    if report.lossless:
        return 0
    return UNDECIDED if report.verdict == "undecided" else NOT_LOSSLESS


def _tokens(text: str) -> list[int]:
    try:
        return [int(token) for token in text.split(",")]
    except ValueError:
        raise InvalidInputError(
            f"the prompt is {shown(text)}; give token ids with commas, such as 0,1,0"
        ) from None


def _imported(name: str) -> Any:
    """Import a function that is named as entry points are, module:function."""
    module_name, colon, path = name.partition(":")
    if not (
        colon and all(part.isidentifier() for part in (*module_name.split("."), *path.split(".")))
    ):
        raise InvalidInputError(
            f"{shown(name)} names no function; write MODULE:FUNCTION, such as otm.coupling:KSeq"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        verifier: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever a module of the user's raises
        name = module_name.removesuffix(".py")
        hint = f"; a module is named as in Python: {name}:{path}" if name != module_name else ""
        raise InvalidInputError(
            f"module {shown(module_name)} cannot be imported: {type(error).__name__}: {error}{hint}"
        ) from error
    for part in path.split("."):
        if not hasattr(verifier, part):
            raise InvalidInputError(f"module {shown(module_name)} has no {shown(path)}")
        verifier = getattr(verifier, part)
    return verifier


def _known_bug(name: str) -> Any:
    from otm.audit.diagnose.known_bugs import KNOWN_BUGS

    by_name = {bug.name: bug.verifier for bug in KNOWN_BUGS}
    return by_name[check_name("known bug", name, by_name)]


def _list_known_bugs(*, as_json: bool) -> None:
    from otm.audit.diagnose.known_bugs import KNOWN_BUGS

    if as_json:
        names = ("name", "mistake", "summary", "threads")
        print_json([{name: getattr(bug, name) for name in names} for bug in KNOWN_BUGS])
        return
    print_table(
        ("known bug", "mistake", "threads"),
        [(bug.name, bug.mistake, ", ".join(bug.threads)) for bug in KNOWN_BUGS],
    )
