"""``otm audit server``: find out whether a server samples from its model's distribution."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from otm._core.display.text import shown
from otm._core.optional import check_installed, require
from otm.cli.audit import NOT_LOSSLESS, print_report
from otm.cli.output import JsonOption
from otm.errors import InvalidInputError

WRONG_LOG_PROBS = 4
"""Exit status for wrong log-probabilities, unless the tokens are "not lossless" too."""

BETWEEN = 30.0
"""Seconds between two lines of progress if standard error is not a terminal."""


class PipedProgress:
    """Progress as a new line every half minute, because a log cannot overwrite a line."""

    def __init__(self) -> None:
        self._begin = self._last_line = time.monotonic()
        self._first: int | None = None

    def __call__(self, what: str, number: int, total: int) -> None:
        """Write the kind of work, the number of the current item and the total."""
        now = time.monotonic()
        if self._first is None:
            self._begin, self._first = now, number
        if now - self._last_line < BETWEEN or number <= self._first:
            return
        self._last_line = now
        left = (now - self._begin) / (number - self._first) * (total - number)
        sys.stderr.write(f"{what} {number:,} of {total:,}, at most {left / 60:.0f} min more\n")
        sys.stderr.flush()


def audit_server(
    url: Annotated[str, Argument(metavar="URL", help="The server, such as http://localhost:8000.")],
    *,
    reference: Annotated[
        str | None, Option(metavar="URL", help="Second server to compare with.")
    ] = None,
    model: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="Folder of a Hugging Face model to compare with."),
    ] = None,
    draft: Annotated[
        Path | None,
        Option(
            metavar="FOLDER",
            help="Folder of the draft model; the report then has the possible acceptance.",
        ),
    ] = None,
    texts_alone: Annotated[
        bool,
        Option("--texts", help="With --model: the server accepts and returns only texts."),
    ] = False,
    prompts: Annotated[
        Path | None,
        Option(metavar="FILE", help="One prompt per line: a text, or token ids as a JSON list."),
    ] = None,
    temperature: Annotated[
        list[float] | None, Option(help="Temperature; repeat the option for several values.")
    ] = None,
    top_k: Annotated[
        list[int] | None, Option(help="Top-k, 0 to turn it off; repeat the option for several.")
    ] = None,
    top_p: Annotated[
        list[float] | None, Option(help="Top-p; repeat the option for several values.")
    ] = None,
    min_p: Annotated[
        list[float] | None, Option(help="Min-p, 0 to turn it off; repeat the option for several.")
    ] = None,
    frequency_penalty: Annotated[float, Option(help="Frequency penalty of all requests.")] = 0.0,
    presence_penalty: Annotated[float, Option(help="Presence penalty of all requests.")] = 0.0,
    repetition_penalty: Annotated[
        float,
        Option(help="Repetition penalty of all requests; it needs --model or --reference."),
    ] = 1.0,
    logit_bias: Annotated[
        list[str] | None,
        Option(
            metavar="TOKEN=VALUE",
            help="Number to add to the logit of a token id; repeat the option for several tokens.",
        ),
    ] = None,
    min_tokens: Annotated[
        int, Option(help="Smallest number of tokens before an end token; it needs --end-token.")
    ] = 0,
    stop: Annotated[
        list[str] | None,
        Option(metavar="TEXT", help="Stop string of all requests. May be repeated."),
    ] = None,
    end_token: Annotated[
        list[int] | None,
        Option(
            metavar="ID",
            help="End token of the model; the audit then checks where texts end. Repeat the option "
            "for all end tokens.",
        ),
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help="Sampling parameter to omit from all requests, such as temperature, or all. The "
            "server's default is then compared with the value stated here. May be repeated.",
        ),
    ] = None,
    generation_config: Annotated[
        Path | None,
        Option(
            metavar="DIR|FILE",
            help="The model's generation_config.json or its folder: the values that the server "
            "should use for parameters that --leave-out names.",
        ),
    ] = None,
    concurrency: Annotated[
        list[int] | None,
        Option(help="Number of simultaneous requests; repeat the option for several values."),
    ] = None,
    max_tokens: Annotated[int, Option(help="Number of tokens of each answer.")] = 8,
    requests: Annotated[int, Option(help="Largest number of requests.")] = 2000,
    tv: Annotated[float, Option(help="Distance (TV) that the audit must exclude.")] = 0.05,
    false_alarms: Annotated[
        float, Option(help="Bound on the probability that a correct server is rejected.")
    ] = 1e-6,
    processed: Annotated[
        bool,
        Option(
            "--processed",
            help="The server lists log-probabilities after temperature and truncation.",
        ),
    ] = False,
    rounding: Annotated[
        float | None,
        Option(help="Allowed error of a probability; 0.001 by default, 0.01 with --model."),
    ] = None,
    name: Annotated[str | None, Option(help="Name of the model on the server.")] = None,
    chat: Annotated[
        bool, Option("--chat", help="Send chats, for a server that does not accept texts.")
    ] = False,
    logprobs: Annotated[
        int, Option(help="Requested length of the lists; some servers allow at most 5.")
    ] = 20,
    timeout: Annotated[float, Option(help="Seconds to wait for an answer.")] = 60.0,
    retries: Annotated[int, Option(help="Number of retries of a failed request.")] = 4,
    resume: Annotated[
        Path | None, Option(metavar="FILE", help="File of answers; read them first, add new ones.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Find out whether a server samples from the distribution of its model.

    The audit compares the server's answers with the log-probabilities in these answers, with a
    second server, or with a local model. The command reads an API key from the environment:
    OTM_API_KEY or else OPENAI_API_KEY.

    Exit status: 0 lossless within the stated distance, 1 not lossless, 2 an error, 3 undecided, 4
    wrong log-probabilities without the verdict "not lossless", 70 a bug in OTM, 130 after Ctrl-C.
    """
    from otm.audit import RequestParameters
    from otm.audit import audit_server as audit
    from otm.audit.streams.server.audit import SAMPLING
    from otm.audit.streams.server.settings import PROMPTS, read_prompts
    from otm.decoding import SamplingParameters

    check_installed("httpx2")
    sampling: Any = SAMPLING
    if temperature or top_k or top_p or min_p:
        product = itertools.product(
            temperature or [1.0], top_k or [0], top_p or [1.0], min_p or [0.0]
        )
        sampling = [
            SamplingParameters(t, top_k=k or None, top_p=None if p == 1 else p, min_p=m or None)
            for t, k, p, m in product
        ]
    request = RequestParameters(
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        repetition_penalty=repetition_penalty,
        logit_bias=_as_biases(logit_bias or ()),
        min_tokens=min_tokens,
        stop=stop or (),
        end_tokens=end_token or (),
    )
    texts = None if prompts is None else read_prompts(prompts)
    target = drafter = None
    tokenizer: Any = None
    if texts_alone and model is None:
        raise InvalidInputError("--texts requires --model, whose tokenizer reads the texts")
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
        request=request,
        leave_out=leave_out or (),
        generation_config=generation_config,
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
    status = print_report(report, as_json=json)
    return WRONG_LOG_PROBS if report.wrong_log_probs and status != NOT_LOSSLESS else status


def _as_biases(texts: Sequence[str]) -> dict[int, float]:
    """Read several TOKEN=VALUE."""
    pairs = [_as_bias(text) for text in texts]
    tokens = [token for token, _ in pairs]
    if again := [token for token in tokens if tokens.count(token) > 1]:
        raise InvalidInputError(f"--logit-bias states token {again[0]} twice; state it once")
    return dict(pairs)


def _as_bias(text: str) -> tuple[int, float]:
    """Read TOKEN=VALUE."""
    token, _, value = text.partition("=")
    try:
        return int(token), float(value)
    except ValueError:
        raise InvalidInputError(
            f"--logit-bias {shown(text)} is not a token id and a number; give TOKEN=VALUE, such as "
            "13=-2.5"
        ) from None


def _load(folder: Path) -> tuple[Any, Any]:
    """Load a model and its tokenizer from files, without executing any code.

    Only a model that `otm models` lists is downloaded.
    """
    transformers = require("transformers")
    from otm.models import HuggingFaceModel
    from otm.models.downloads.folder import folder_or_name

    if not folder.is_dir():
        folder = Path(folder_or_name(str(folder)))
    if not folder.is_dir():
        raise InvalidInputError(
            f"folder {shown(str(folder))} does not exist; download the model first"
        )
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise InvalidInputError(
            f"folder {shown(str(folder))} has no readable model with a tokenizer: "
            f"{type(error).__name__}: {error!s:.200}"
        ) from None
    return HuggingFaceModel(model.eval(), tokenizer=tokenizer), tokenizer
