"""The audit of a server: its arguments, its requests and its report."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from os import PathLike
from typing import Any

from otm._core.display.progress import Progress, watching
from otm._core.files.paths import as_path
from otm._core.numbers import as_integer, as_level, as_real
from otm.audit.streams.server import probes as extra
from otm.audit.streams.server.answers import Completion, Encoded, Prompt
from otm.audit.streams.server.client import Access, Client
from otm.audit.streams.server.findings import Limits
from otm.audit.streams.server.journal import Journal, digest_of
from otm.audit.streams.server.references import OwnLists, ProbsOf, probs_from_model
from otm.audit.streams.server.report import ServerReport
from otm.audit.streams.server.request_loop import Run
from otm.audit.streams.server.settings import Setting, as_omitted, as_prompts, as_settings
from otm.decoding import SamplingParameters
from otm.errors import InvalidInputError
from otm.models import LanguageModel

SAMPLING = (
    SamplingParameters(),
    SamplingParameters(temperature=0.7),
    SamplingParameters(top_k=10),
    SamplingParameters(top_p=0.9),
)
"""Sampling parameters of an audit that names none."""

DEFAULT_ROUNDING = 1e-3
"""How far a class may be off on average, in a server's own numbers or beside another server."""

MODEL_ROUNDING = 0.01
"""The same beside a local model, which may compute in another precision."""

MOST_POSSIBLE = 200
"""Number of answers for which the acceptance of the models is computed."""


def audit_server(
    url: str,
    *,
    reference: str | None = None,
    model: LanguageModel | None = None,
    draft: LanguageModel | None = None,
    tokenizer: Any = None,
    prompts: Sequence[Any] | None = None,
    sampling: Sequence[SamplingParameters] = SAMPLING,
    concurrency: Sequence[int] = (1, 8),
    max_tokens: int = 8,
    requests: int = 2000,
    tv: float = 0.05,
    false_alarms: float = 1e-6,
    leave_out: Sequence[str] = (),
    processed: bool = False,
    rounding: float | None = None,
    name: str | None = None,
    chat: bool = False,
    logprobs: int = 20,
    timeout: float = 60.0,
    retries: int = 4,
    resume: str | PathLike[str] | None = None,
    probes: bool = True,
    progress: Progress | None = None,
    transport: Any = None,
) -> ServerReport:
    """Find out whether a server samples from the distribution that its model has.

    The server is an OpenAI-compatible one, such as vLLM, and nothing of it need be known.  Its
    tokens are compared with the log-probabilities that it lists itself, with a local model, or with
    the tokens of a second server; merged into 16 classes, by e-values that hold whenever the audit
    stops ([ville1939]_; own design, docs/theory/server-audit.md).  A key is read from the
    environment, OTM_API_KEY or else OPENAI_API_KEY, and sent to both servers.

    Parameters
    ----------
    url : str
        The server, such as "http://localhost:8000".
    reference : str, optional
        A second server to compare with: the same model, for example without drafts.
    model : LanguageModel, optional
        A local model to compare with.
    draft : LanguageModel, optional
        The draft model, beside `model`: the report says which acceptance the two allow.
    tokenizer : PreTrainedTokenizerBase, optional
        Beside `model`, for a server that takes and returns texts alone, such as that of
        transformers: texts are read by the tokens that it makes of them.  Where the server sampled
        others for the same text, that is taken for a deviation.
    prompts : sequence of str or of sequences of int, optional
        What is continued: texts, or token ids, which a model without a tokenizer needs; eight short
        texts if left out.
    sampling : sequence of SamplingParameters, optional
        Temperatures, top-k and top-p; greedy texts are compared by themselves.
    concurrency : sequence of int, optional
        How many requests are sent at a time; each goes with each of `sampling`.
    max_tokens : int, optional
        Tokens of each answer.
    requests : int, optional
        Most requests whose tokens are sampled; greedy texts and seeds take up to 16 more.
    tv : float, optional
        The distance that must be excluded for "lossless on everything tried".
    false_alarms : float, optional
        Bound on the probability that a right server is called not lossless.
    leave_out : sequence of str, optional
        Sampling parameters to leave out of all requests, such as "temperature". The server's own
        values are compared with those of `sampling`, whose default is then temperature 1 alone.
    processed : bool, optional
        Whether the listed log-probabilities are after temperature, top-k and top-p.
    rounding : float, optional
        How far the probability of a class may be off on average: 0.001, and 0.01 for a model.
    name : str, optional
        The model's name on the server; the first that it lists if left out.
    chat : bool, optional
        Whether to ask by chats; prompts are then messages of a user.
    logprobs : int, optional
        Length of the lists that are asked for.
    timeout : float, optional
        Seconds for an answer.
    retries : int, optional
        How often a request is sent again.
    resume : str or Path, optional
        A file for the answers; if it has some of the same audit already, these come first.
    probes : bool, optional
        Whether greedy texts and seeds are tried.
    progress : callable, optional
        As for `lossless`.
    transport : httpx2.BaseTransport, optional
        What sends the requests, for tests.

    Returns
    -------
    ServerReport
        The verdict, with the distance that is excluded.

    Raises
    ------
    EndpointError
        If a server cannot be reached, refuses, or does not answer as its interface says.
    InvalidInputError
        If an argument or the file to resume is wrong.
    MissingDependencyError
        If httpx2 is not installed.

    References
    ----------
    .. [ville1939] Ville, "Étude critique de la notion de collectif", 1939.

    Examples
    --------
    A simulated server that samples at another temperature than it is asked for:

    >>> from otm.audit import audit_server
    >>> from otm.audit.streams.server.simulated import simulated_server
    >>> wrong = simulated_server(temperature=0.7)
    >>> audit_server("http://simulated", transport=wrong).verdict
    'not lossless'
    """
    if reference is not None and model is not None:
        raise InvalidInputError("a reference and a model; compare with one of the two")
    if draft is not None and model is None:
        raise InvalidInputError("a draft without a model; give both")
    if tokenizer is not None and (model is None or chat):
        raise InvalidInputError("a tokenizer is for a model, and not for chats; leave it out")
    if processed and (reference is not None or model is not None):
        raise InvalidInputError("`processed` is about the server's own log-probabilities")
    least = 0 if reference is not None else 2
    listed = as_integer(logprobs, "logprobs", max(least, 1), 1000)
    omitted = as_omitted(leave_out)
    if omitted and sampling is SAMPLING:
        sampling = SAMPLING[:1]
    settings = as_settings(sampling, concurrency, omitted)
    texts = as_prompts(prompts, chat=chat, ids=model is not None and tokenizer is None)
    if tokenizer is not None:
        if not all(isinstance(text, str) for text in texts):
            raise InvalidInputError("beside a tokenizer all prompts are texts")
        texts = tuple(Encoded.of(str(text), tokenizer) for text in texts)
    limits = Limits(
        as_integer(requests, "requests", 1),
        as_real(tv, "tv", above=0, below=1),
        as_level(false_alarms, "false_alarms"),
    )
    usual = DEFAULT_ROUNDING if model is None else MODEL_ROUNDING
    drift = usual if rounding is None else as_real(rounding, "rounding", least=0, below=0.5)
    alone = reference is None and model is None
    own = OwnLists(listed, processed=processed, chat=chat) if alone else None
    probs_of: ProbsOf | None = own if model is None else probs_from_model(model)
    length = as_integer(max_tokens, "max_tokens", 1, 10_000)
    run = Run(texts, settings, limits, length, listed, probs_of, drift)
    access = Access(
        timeout=as_real(timeout, "timeout", above=0),
        retries=as_integer(retries, "retries", 0, 20),
        chat=chat,
        logprobs=listed,
        tokenizer=tokenizer,
        own_lists=alone,
        leave_out=omitted,
    )
    possible: list[float] = []

    def on_answer(prompt: Prompt, answer: Completion, setting: Setting) -> None:
        if model is not None and draft is not None and len(possible) < MOST_POSSIBLE * length:
            possible.extend(
                extra.possible_acceptance((model, draft), prompt, answer, setting.parameters)
            )

    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(watching(progress, "server"))
        clients = []
        for address in (url,) if reference is None else (url, reference):
            client = Client(address, name, access, transport)
            stack.callback(client.close)
            clients.append(client)
        journal = Journal(
            None if resume is None else as_path(resume), _digest(run, access, clients)
        )
        stack.callback(journal.close)
        before = clients[0].metrics()
        run.work(
            clients, journal, lambda done: watch.tell("request", done, limits.requests), on_answer
        )
        after = clients[0].metrics()
        same = None
        if probes and "temperature" not in omitted:
            same = extra.compare_greedy_texts(clients, model, texts, length)
        again = extra.repeat_seeds(clients[0], texts, length) if probes else None
    allowed = math.fsum(possible) / len(possible) if possible else None
    shows = run.findings
    return ServerReport(
        server=clients[0].url,
        model=clients[0].model,
        verdict=shows.verdict,
        reasons=shows.reasons(),
        against=_describe_reference(clients, model, listed, omitted, processed=processed),
        requests=run.requests,
        tokens=shows.count,
        left_out=shows.left_out,
        log10_e_value=shows.mixture.largest / math.log(10),
        tv_bound=shows.bound,
        tv=limits.tv,
        false_alarms=limits.level,
        rounding=drift,
        retried=sum(client.retried for client in clients),
        entropy=shows.entropy,
        greedy_distance=shows.greedy_distance,
        lists=None if shows.same_text is None else shows.same_text.summary(),
        repeats=None if shows.copies is None else shows.copies.summary(),
        decimals=None if own is None else own.rounded_to,
        refused=clients[0].refused,
        settings=run.setting_results(),
        most_deviant=run.most_deviant(),
        greedy=same,
        seeds=again,
        acceptance=extra.acceptance_between(before, after, allowed),
    )


def _digest(run: Run, access: Access, clients: Sequence[Client]) -> str:
    """Hash everything that decides which requests are sent and how answers are read."""
    servers = [[client.url, client.model] for client in clients]
    settings = [[dataclasses.asdict(s.parameters), s.concurrency] for s in run.settings]
    return digest_of(
        [
            *(servers, settings, run.prompts, run.tokens, run.block),
            *(access.chat, access.logprobs, sorted(access.leave_out)),
        ]
    )


def _describe_reference(
    clients: Sequence[Client],
    model: LanguageModel | None,
    listed: int,
    omitted: Sequence[str],
    *,
    processed: bool,
) -> str:
    if len(clients) > 1:
        found = f"the tokens of {clients[1].url} after the same text"
    elif model is not None:
        found = "a local model"
    else:
        when = "after" if processed else "before"
        found = f"its own log-probabilities, the {listed} largest {when} temperature and truncation"
    return f"{found}; requests leave out {', '.join(omitted)}" if omitted else found
