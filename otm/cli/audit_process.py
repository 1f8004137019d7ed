"""``otm audit process``: find out whether a program in any language is lossless."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Argument, Option

from otm._core.display.interrupts import sigterm_as_ctrl_c
from otm.cli.audit import (
    ExamplesOption,
    GammaOption,
    PromptOption,
    SeedOption,
    SlowOption,
    VocabularyOption,
    print_report,
    prompt_tokens,
)
from otm.cli.output import JsonOption


def audit_process(
    command: Annotated[
        list[str],
        Argument(metavar="COMMAND", help="The program and its arguments, without a shell."),
    ],
    *,
    kind: Annotated[str, Option(help="chain, chains (several chains) or loop.")] = "chain",
    randomness: Annotated[
        str, Option(help="uniforms; or seed, for a program that draws its own random numbers.")
    ] = "uniforms",
    temperature: Annotated[
        float | None,
        Option(help="Send logits in place of probabilities; the program divides them by this."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        Option(help="With --kind loop: number of tokens of a text; fewer are audited faster."),
    ] = None,
    end: Annotated[int | None, Option(help="With --kind loop: token that ends a text.")] = None,
    timeout: Annotated[
        float, Option(help="Seconds to wait for an answer, or for a whole run of a loop.")
    ] = 10.0,
    start_timeout: Annotated[
        float, Option(help="Seconds to wait for the first answer, if more than --timeout.")
    ] = 30.0,
    examples: ExamplesOption = 50,
    delta: Annotated[
        float, Option(help="Deviation (TV) that must be detected with --randomness seed.")
    ] = 0.03,
    false_alarms: Annotated[
        float, Option(help="Bound on the probability that a lossless program is rejected.")
    ] = 1e-6,
    max_runs: Annotated[int, Option(help="Largest number of runs of the program.")] = 1_000_000,
    max_seconds: Annotated[float, Option(help="Approximate time limit in seconds.")] = 40.0,
    vocabulary: VocabularyOption = None,
    gamma: GammaOption = None,
    prompt: PromptOption = None,
    seed: SeedOption = 0,
    slow: SlowOption = False,
    json: JsonOption = False,
) -> int:
    """Find out whether a program in any language is lossless.

    Options come before COMMAND; words after it belong to the program. The program reads one JSON
    request per line and writes one answer per line, in order, each flushed. It ends when its input
    ends. It may write other text to standard error.

    \b
    A verifier of a chain gets target rows [gamma + 1][V], draft rows [gamma][V], drafts [gamma] and
    uniforms [gamma + 2], always in this form without spaces. It returns the accepted drafts and one
    more token:
      {"id":7,"target":[[0.5,0.5],[0.2,0.8]],"draft":[[0.9,0.1]],"tokens":[0],"uniforms":[0.2,0.3,0.4]}
      {"id":7,"tokens":[0,1]}

    \b
    A loop gets a prompt, asks for rows and uniforms, and returns exactly max_tokens tokens, or
    fewer if a text ends with --end:
      {"id":3,"prompt":[0],"gamma":2,"max_tokens":3,"vocabulary":2}
      {"model":"draft","tokens":[0]}                  the row after a text
      {"probs":[0.9,0.1]}
      {"model":"target","tokens":[0,1,1],"rows":3}    the last 3 rows of the target
      {"probs":[[0.5,0.5],[0.2,0.8],[0.3,0.7]]}
      {"uniforms":2}
      {"uniforms":[0.25,0.75]}
      {"id":3,"tokens":[1,0,1]}

    With --temperature, rows are called target_logits and draft_logits (logits for a loop), requests
    have a temperature, and the logit -1e30 stands for probability 0. With --randomness seed,
    requests have a seed and no uniforms.

    Exit status: 0 lossless on everything tried, 1 not lossless, 2 an error (also in the program), 3
    undecided, 70 a bug in OTM, 130 after Ctrl-C or SIGTERM.
    """  # noqa: D301 - click reads \b as "do not wrap this paragraph"
    from otm.audit import lossless, process

    verifier: Any = process(
        command,
        kind=kind,
        randomness=randomness,
        temperature=temperature,
        max_tokens=max_tokens,
        end=end,
        timeout=timeout,
        start_timeout=start_timeout,
    )
    # Either signal also ends the audited program.
    with sigterm_as_ctrl_c():
        report = lossless(
            verifier,
            examples=examples,
            delta=delta,
            false_alarms=false_alarms,
            max_runs=max_runs,
            max_seconds=max_seconds,
            vocabulary=vocabulary,
            gamma=gamma,
            prompt=None if prompt is None else prompt_tokens(prompt),
            seed=seed,
            slow=slow,
        )
    return print_report(report, as_json=json)
