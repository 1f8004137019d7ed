"""``otm audit server``: whether a server samples from the distribution of its model."""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from otm._core.display.text import shown
from otm._core.optional import check_installed, require
from otm.cli.audit import print_report
from otm.cli.output import JsonOption
from otm.errors import InvalidInputError

BETWEEN = 30.0
"""Seconds between two lines of progress where standard error is no terminal."""


class PipedProgress:
    """Write a new line of progress every half minute: a log has no line to overwrite."""

    def __init__(self) -> None:
        self._begin = self._told = time.monotonic()
        self._first: int | None = None

    def __call__(self, what: str, number: int, total: int) -> None:
        """Report the kind of work, the number of the current item and the total."""
        now = time.monotonic()
        if self._first is None:
            self._begin, self._first = now, number
        if now - self._told < BETWEEN or number <= self._first:
            return
        self._told = now
        left = (now - self._begin) / (number - self._first) * (total - number)
        sys.stderr.write(f"{what} {number:,} of {total:,}, at most {left / 60:.0f} min more\n")
        sys.stderr.flush()


def audit_server(
    url: Annotated[str, Argument(metavar="URL", help="The server, such as http://localhost:8000.")],
    *,
    reference: Annotated[
        str | None, Option(metavar="URL", help="A second server to compare with.")
    ] = None,
    model: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="A model of Hugging Face to compare with, as files."),
    ] = None,
    draft: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="Its draft model: which acceptance do the two allow?"),
    ] = None,
    texts_alone: Annotated[
        bool,
        Option("--texts", help="With --model: the server takes and returns texts alone."),
    ] = False,
    prompts: Annotated[
        Path | None,
        Option(metavar="FILE", help="A prompt a line: a text, or token ids as a JSON list."),
    ] = None,
    temperature: Annotated[
        list[float] | None, Option(help="Temperature; may be repeated (1 and 0.7).")
    ] = None,
    top_k: Annotated[list[int] | None, Option(help="Top-k, 0 for none; may be repeated.")] = None,
    top_p: Annotated[list[float] | None, Option(help="Top-p; may be repeated.")] = None,
    leave_out: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help="A sampling parameter to leave out of all requests, such as temperature, or all: "
            "the server's own value is compared with the one stated here; may be repeated.",
        ),
    ] = None,
    concurrency: Annotated[
        list[int] | None, Option(help="Requests at a time; may be repeated (1 and 8).")
    ] = None,
    max_tokens: Annotated[int, Option(help="Tokens of each answer.")] = 8,
    requests: Annotated[int, Option(help="Most requests.")] = 2000,
    tv: Annotated[float, Option(help="Distance that must be excluded.")] = 0.05,
    false_alarms: Annotated[
        float, Option(help="Bound on the probability that a right server is rejected.")
    ] = 1e-6,
    processed: Annotated[
        bool,
        Option(
            "--processed", help="The listed log-probabilities are after temperature and truncation."
        ),
    ] = False,
    rounding: Annotated[
        float | None, Option(help="Error of a probability that passes; 0.001, for a model 0.01.")
    ] = None,
    name: Annotated[str | None, Option(help="The model's name on the server.")] = None,
    chat: Annotated[
        bool, Option("--chat", help="Send chats, to a server that takes no texts.")
    ] = False,
    logprobs: Annotated[
        int, Option(help="Length of the lists that are asked for; some servers give 5 at most.")
    ] = 20,
    timeout: Annotated[float, Option(help="Seconds for an answer.")] = 60.0,
    retries: Annotated[int, Option(help="How often a request is sent again.")] = 4,
    resume: Annotated[
        Path | None, Option(metavar="FILE", help="Keep the answers here, and begin with them.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Find out whether a server samples from the distribution that its model has.

    The server is compared with the log-probabilities that it lists, or with a second server, or
    with a local model. A key is read from the environment, OTM_API_KEY or else OPENAI_API_KEY.

    Exit status: 0 lossless within the stated distance, 1 not lossless, 2 an error, 3 undecided, 70
    a bug of OTM, 130 after Ctrl-C.
    """
    from otm.audit import audit_server as audit
    from otm.audit.streams.server.audit import SAMPLING
    from otm.audit.streams.server.settings import PROMPTS, read_prompts
    from otm.decoding import SamplingParameters

    check_installed("httpx2")
    sampling: Any = SAMPLING
    if temperature or top_k or top_p:
        product = itertools.product(temperature or [1.0], top_k or [0], top_p or [1.0])
        sampling = [
            SamplingParameters(temperature=t, top_k=k or None, top_p=None if p == 1 else p)
            for t, k, p in product
        ]
    texts = None if prompts is None else read_prompts(prompts)
    target = drafter = None
    tokenizer: Any = None
    if texts_alone and model is None:
        raise InvalidInputError("--texts is for --model: its tokenizer reads them")
    if model is not None:
        target, tokenizer = _load(model)
        if draft is not None:
            drafter, _ = _load(draft)
    if model is not None and not texts_alone:
        texts = [
            tokenizer(text).input_ids if isinstance(text, str) else text
            for text in (PROMPTS if texts is None else texts)
        ]
    report = audit(
        url,
        reference=reference,
        model=target,
        draft=drafter,
        tokenizer=tokenizer if texts_alone else None,
        prompts=texts,
        sampling=sampling,
        leave_out=leave_out or (),
        concurrency=concurrency or (1, 8),
        max_tokens=max_tokens,
        requests=requests,
        tv=tv,
        false_alarms=false_alarms,
        processed=processed,
        rounding=rounding,
        name=name,
        chat=chat,
        logprobs=logprobs,
        timeout=timeout,
        retries=retries,
        resume=resume,
        progress=None if sys.stderr.isatty() else PipedProgress(),
    )
    return print_report(report, as_json=json)


def _load(folder: Path) -> tuple[Any, Any]:
    """Load a model and its tokenizer from files; nothing is downloaded or executed."""
    transformers = require("transformers")
    from otm.models import HuggingFaceModel

    if not folder.is_dir():
        raise InvalidInputError(
            f"there is no folder {shown(str(folder))}; download the model first"
        )
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise InvalidInputError(
            f"{shown(str(folder))} holds no model with a tokenizer that can be read: "
            f"{type(error).__name__}: {error!s:.200}"
        ) from None
    return HuggingFaceModel(model.eval(), tokenizer=tokenizer), tokenizer
