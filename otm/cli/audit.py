"""``otm audit``: find out whether a verifier is lossless."""

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

ExamplesOption = Annotated[int, Option(help="Number of pairs of models that Hypothesis generates.")]
VocabularyOption = Annotated[
    int | None, Option(help="Vocabulary size of additional pairs of models.")
]
GammaOption = Annotated[
    int | None, Option(help="Number of drafts of a chain in additional pairs of models.")
]
PromptOption = Annotated[
    str | None, Option(help='Prompt of additional pairs of models, such as "0,1,0".')
]
SeedOption = Annotated[int, Option(help="Seed of the audit's random numbers.")]
SlowOption = Annotated[
    bool, Option("--slow", help="For code that takes hundredths of a second or more per run.")
]
"""Options of the audits that run code: of a Python function, and of a program."""


def audit(
    verifier: Annotated[
        str | None,
        Argument(
            metavar="MODULE:FUNCTION",
            help="The verifier; its module may be in the current folder. With --known-bugs, the "
            "name of a bug.",
        ),
    ] = None,
    *,
    kind: Annotated[
        str | None,
        Option(
            help="chain, token, loop, loops, chains, tree, batch, stateful or windowed; may be "
            "omitted for a chain or a rule."
        ),
    ] = None,
    method: Annotated[
        str | None,
        Option(
            help='"exact paths", "breakpoints" or "Monte Carlo"; default: the first that works.'
        ),
    ] = None,
    false_alarms: Annotated[
        float, Option(help="Bound on the probability that a lossless verifier is rejected.")
    ] = 1e-6,
    delta: Annotated[
        float | None,
        Option(help="Deviation (TV) that must be detected; 0.03 by default, 0.05 with --recorded."),
    ] = None,
    examples: ExamplesOption = 50,
    max_runs: Annotated[int, Option(help="Largest number of runs of the verifier.")] = 1_000_000,
    max_seconds: Annotated[
        float | None, Option(help="Approximate time limit in seconds; 40 by default.")
    ] = None,
    vocabulary: VocabularyOption = None,
    gamma: GammaOption = None,
    prompt: PromptOption = None,
    seed: SeedOption = 0,
    recorded: Annotated[
        Path | None,
        Option(help="File of steps that an engine recorded; takes the place of a verifier."),
    ] = None,
    rounding: Annotated[
        float | None,
        Option(help="With --recorded: largest relative error of a probability; default: by type."),
    ] = None,
    slow: SlowOption = False,
    known_bugs: Annotated[
        bool, Option("--known-bugs", help="List the known bugs, or audit the named bug.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Find out whether a verifier is lossless: whether its output follows the target.

    A chain is a function of target_probs, draft_probs, draft_tokens and uniforms. A token rule is a
    function of target_probs, draft_probs, drafts and uniforms, or a rule of otm.coupling. A loop is
    a function of target, draft, prompt, gamma, max_tokens and uniforms. docs/audit.md describes the
    other kinds of verifier. In place of uniforms, a function may take rng, generator or seed; a
    function without these parameters draws its own random numbers.

    The command imports the module of the verifier, and so executes the code of this module.

    With --recorded, the command runs no verifier: FILE contains steps with the distributions of
    both models, in the format of docs/audit.md.

    For a server, use otm audit server URL. For a program in any language, use otm audit process
    COMMAND. Both have --help.

    Exit status: 0 lossless on everything tried, 1 not lossless, 2 an error, 3 undecided, 70 a bug
    in OTM.
    """
    from otm.audit import lossless

    if recorded is not None:
        if verifier is not None or known_bugs or kind is not None or method is not None:
            raise InvalidInputError("--recorded FILE takes no verifier, kind or method")
        return _recorded(recorded, false_alarms, delta, rounding, as_json=json)
    if rounding is not None:
        raise InvalidInputError("--rounding requires --recorded FILE")
    if verifier is None:
        if not known_bugs:
            raise InvalidInputError(
                "no verifier to audit; give MODULE:FUNCTION, such as otm.coupling:KSeq"
            )
        _list_known_bugs(as_json=json)
        return 0
    seconds: dict[str, Any] = {} if max_seconds is None else {"max_seconds": max_seconds}
    # Redirect the verifier's own output, so that standard output has only the report.
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
            prompt=None if prompt is None else prompt_tokens(prompt),
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
    """Print a report and return the exit status."""
    if as_json:
        print_json(report.to_dict())
    else:
        print(report)
    if report.lossless:
        return 0
    return UNDECIDED if report.verdict == "undecided" else NOT_LOSSLESS


def prompt_tokens(text: str) -> list[int]:
    """Read the token ids of a prompt."""
    try:
        return [int(token) for token in text.split(",")]
    except ValueError:
        raise InvalidInputError(
            f"the prompt is {shown(text)}; give token ids separated by commas, such as 0,1,0"
        ) from None


def _imported(name: str) -> Any:
    """Import the function that an entry point module:function names."""
    module_name, colon, path = name.partition(":")
    if not (
        colon and all(part.isidentifier() for part in (*module_name.split("."), *path.split(".")))
    ):
        raise InvalidInputError(
            f"{shown(name)} does not name a function; give MODULE:FUNCTION, such as "
            "otm.coupling:KSeq"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        verifier: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # The user's module may raise any exception.
        name = module_name.removesuffix(".py")
        hint = f"; give the module name as in Python: {name}:{path}" if name != module_name else ""
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
