"""Audit a server: arguments, requests and report."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from otm._core.display.progress import Progress, watching
from otm._core.files.paths import AnyPath, as_path
from otm._core.numbers import as_integer, as_level, as_real
from otm.audit.streams.server.answers import Encoded, Prompt
from otm.audit.streams.server.blocks import Mixture
from otm.audit.streams.server.checks.greedy_texts import compare_greedy_texts
from otm.audit.streams.server.checks.kept_answers import AnswerSample, ListFormat
from otm.audit.streams.server.checks.prompt_lists import ListFindings, check_log_probs
from otm.audit.streams.server.checks.prompt_reader import PromptReader
from otm.audit.streams.server.checks.seeds import accepts, repeat_seeds
from otm.audit.streams.server.client import Access, Client
from otm.audit.streams.server.distributions.references import ModelProbs, OwnLists, ProbsOf
from otm.audit.streams.server.journal import Journal, digest_of
from otm.audit.streams.server.plan import Limits, Plan
from otm.audit.streams.server.probes import acceptance_between, possible_acceptance
from otm.audit.streams.server.report import ServerReport
from otm.audit.streams.server.request_loop import Run
from otm.audit.streams.server.request_parameters import (
    NO_PARAMETERS,
    Against,
    RequestParameters,
    as_request,
    check_request,
)
from otm.audit.streams.server.settings import (
    Setting,
    as_omitted,
    as_prompts,
    as_settings,
    with_defaults,
)
from otm.decoding import SamplingParameters
from otm.errors import InvalidInputError
from otm.models import LanguageModel

SAMPLING = (
    SamplingParameters(),
    SamplingParameters(temperature=0.7),
    SamplingParameters(top_k=10),
    SamplingParameters(top_p=0.9),
)
"""Default sampling parameters."""

DEFAULT_ROUNDING = 1e-3
"""Allowed mean error of a class's probability, for the server's own lists or another server."""

MODEL_ROUNDING = 0.01
"""Allowed mean error with a local model, which may compute in another precision."""

MAX_ANSWERS = 200
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
    request: RequestParameters = NO_PARAMETERS,
    leave_out: Sequence[str] = (),
    generation_config: AnyPath | Mapping[str, Any] | None = None,
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
    """Find out whether a server samples from the distribution of its model.

    The server must be OpenAI-compatible, such as vLLM; the audit needs no other knowledge of it.
    The audit compares the server's tokens with the server's lists of log-probabilities, with a
    local model, or with the tokens of a second server.  The audit merges tokens into 16 classes and
    uses e-values that hold whenever the audit stops ([ville1939]_; own design,
    docs/theory/server-audit.md).  The audit reads a key from the environment, OTM_API_KEY or else
    OPENAI_API_KEY, and sends it to both servers.

    Parameters
    ----------
    url : str
        Address of the server, such as "http://localhost:8000".
    reference : str, optional
        Address of a second server to compare with: the same model, for example without drafts.
    model : LanguageModel, optional
        Local model to compare with.
    draft : LanguageModel, optional
        Draft model in addition to `model`: the report then has the acceptance that both models
        allow.
    tokenizer : PreTrainedTokenizerBase, optional
        Tokenizer in addition to `model`, for a server that accepts and returns only texts, such as
        that of transformers.  The audit reads each text with this tokenizer.  If the server sampled
        other tokens for the same text, this counts as a deviation.
    prompts : sequence of str or of sequences of int, optional
        Prompts to continue: texts, or token ids, which a model without a tokenizer needs; by
        default eight short texts.
    sampling : sequence of SamplingParameters, optional
        Temperatures, top-k, top-p and min-p to test; greedy texts are compared separately.
    concurrency : sequence of int, optional
        Numbers of simultaneous requests; each is combined with each entry of `sampling`.
    max_tokens : int, optional
        Number of tokens of each answer.
    requests : int, optional
        Largest number of requests with sampled tokens; the `probes` need up to 350 more.
    tv : float, optional
        Distance that must be excluded for the verdict "lossless on everything tried".
    false_alarms : float, optional
        Bound on the probability that a correct server is called not lossless.
    request : RequestParameters, optional
        Penalties, bias, stop strings and end tokens that all requests have.  With the server's own
        lists, penalties and biases need token ids.  The distribution given that the token is on the
        list is exact.  With top-k, top-p or min-p, a token counts only if no unlisted token can be
        more probable after the change.  A repetition penalty needs a model that returns logits, or
        a second server.  The audit checks endings if `request` has stop strings or end tokens; a
        wrong ending is a certain counterexample.
    leave_out : sequence of str, optional
        Sampling parameters to omit from all requests, such as "temperature".  The audit compares
        the server's own values of omitted parameters with those of `sampling`, whose default
        becomes temperature 1.
    generation_config : str, Path or mapping, optional
        The model's `generation_config.json`, its folder, or its content.  It states the values that
        the server should use for the omitted temperature, top-k, top-p, min-p and repetition
        penalty; missing values are neutral, as in vLLM.
    processed : bool, optional
        Whether the server lists log-probabilities after all sampling parameters.  The audit then
        cannot see a parameter that is missing from both lists and tokens.
    rounding : float, optional
        Allowed mean error of a class's probability: by default 0.001, with a model 0.01.
    name : str, optional
        Name of the model on the server; by default the first that it lists.
    chat : bool, optional
        Whether to send chats, with prompts as messages of a user.
    logprobs : int, optional
        Requested length of the lists of log-probabilities.
    timeout : float, optional
        Seconds to wait for an answer.
    retries : int, optional
        Number of retries of a failed request.
    resume : str or Path, optional
        File of answers.  The audit first reads the earlier answers of the same audit from the file,
        then adds new answers.
    probes : bool, optional
        Whether to try greedy texts and seeds, to check log-probabilities, and to send blocks of
        different requests.  Such blocks need a `concurrency` above 1, and neither `reference` nor
        `request`.
    progress : callable, optional
        As for `lossless`.
    transport : httpx2.BaseTransport, optional
        Transport of the requests, for tests.

    Returns
    -------
    ServerReport
        The verdict, with the excluded distance.

    Raises
    ------
    EndpointError
        If a server cannot be reached, rejects a request, or its answer has another form.
    InvalidInputError
        If an argument or the file to resume is invalid.
    MissingDependencyError
        If httpx2 is not installed.

    References
    ----------
    .. [ville1939] Ville, "Étude critique de la notion de collectif", 1939.

    Examples
    --------
    A simulated server that samples at another temperature than the request states:

    >>> from otm.audit import audit_server
    >>> from otm.audit.streams.server.simulated import simulated_server
    >>> wrong = simulated_server(temperature=0.7)
    >>> audit_server("http://simulated", transport=wrong).verdict
    'not lossless'
    """
    references = Against(reference is not None, model, tokenizer is not None, processed)
    _check_references(references, draft, chat=chat)
    least = 0 if reference is not None else 2
    listed = as_integer(logprobs, "logprobs", max(least, 1), 1000)
    omitted, request = as_omitted(leave_out), as_request(request)
    if omitted and sampling is SAMPLING:
        sampling = SAMPLING[:1]
    if generation_config is not None:
        sampling, request = with_defaults(sampling, request, generation_config, omitted)
    settings = as_settings(sampling, concurrency, omitted)
    length = as_integer(max_tokens, "max_tokens", 1, 10_000)
    check_request(request, references, length)
    texts = as_prompts(prompts, chat=chat, ids=model is not None and tokenizer is None)
    if tokenizer is not None:
        texts = _encoded(texts, tokenizer)
    limits = Limits(
        as_integer(requests, "requests", 1),
        as_real(tv, "tv", above=0, below=1),
        as_level(false_alarms, "false_alarms"),
    )
    usual = DEFAULT_ROUNDING if model is None else MODEL_ROUNDING
    drift = usual if rounding is None else as_real(rounding, "rounding", least=0, below=0.5)
    alone = reference is None and model is None
    own = OwnLists(listed, processed=processed, chat=chat, request=request) if alone else None
    probs_of: ProbsOf | None = own if model is None else ModelProbs(model, request)
    access = Access(
        timeout=as_real(timeout, "timeout", above=0),
        retries=as_integer(retries, "retries", 0, 20),
        chat=chat,
        logprobs=listed,
        tokenizer=tokenizer,
        own_lists=alone,
        leave_out=omitted,
        request=request,
    )
    form = ListFormat(listed, chat, processed)
    seen = AnswerSample()
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(watching(progress, "server"))
        addresses = (url,) if reference is None else (url, reference)
        clients = [_open(stack, address, name, access, transport) for address in addresses]
        # Only blocks of one setting check the ends of texts and the penalties.
        mixed = probes and reference is None and not request.stated
        mixture = _mixture(clients[0], texts[0], settings, own) if mixed else None
        plan = Plan(
            texts, settings, limits, length, listed, probs_of, drift, request, omitted, mixture
        )
        run = Run(plan)
        journal = Journal(
            None if resume is None else as_path(resume), _digest(plan, access, clients)
        )
        stack.callback(journal.close)
        before = clients[0].metrics()
        run.work(
            clients, journal, lambda done: watch.tell("request", done, limits.requests), seen.add
        )
        after = clients[0].metrics()
        greedy, seeds, lists = None, None, ListFindings()
        if probes:
            readers = [PromptReader(client, texts) for client in clients]
            changes = NO_PARAMETERS if processed else request
            greedy = compare_greedy_texts(readers, model, length, changes)
            seeds = repeat_seeds(clients[0], texts, length)
            lists = check_log_probs(readers, seen, form, own, (model, draft))
    shows = run.findings
    verdict, reasons = lists.verdict(shows)
    possible = possible_acceptance((model, draft), texts, seen.of(0)[:MAX_ANSWERS], request)
    return ServerReport(
        server=clients[0].url,
        model=clients[0].model,
        verdict=verdict,
        reasons=reasons,
        against=_describe_reference(clients, model, plan, processed=processed),
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
        rejected=clients[0].rejected,
        settings=run.setting_results(),
        most_deviant=run.most_deviant(),
        endings=None if shows.endings is None else shows.endings.counts,
        log_probs=tuple(lists.checks),
        greedy=greedy,
        seeds=seeds,
        acceptance=acceptance_between(before, after, possible),
    )


def _check_references(against: Against, draft: LanguageModel | None, *, chat: bool) -> None:
    if against.server and against.model is not None:
        raise InvalidInputError("both a reference and a model are given; give only one of them")
    if draft is not None and against.model is None:
        raise InvalidInputError("a draft requires a model; give both")
    if against.texts and (against.model is None or chat):
        raise InvalidInputError(
            "a tokenizer requires a model and cannot be used with chats; leave the tokenizer out"
        )


def _encoded(texts: Sequence[Prompt], tokenizer: Any) -> tuple[Encoded, ...]:
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInputError("with a tokenizer, all prompts must be texts")
    return tuple(Encoded.of(str(text), tokenizer) for text in texts)


def _open(
    stack: contextlib.ExitStack, address: str, name: str | None, access: Access, transport: Any
) -> Client:
    """Open a client that is closed with the stack."""
    client = Client(address, name, access, transport)
    stack.callback(client.close)
    return client


def _mixture(
    client: Client, prompt: Prompt, settings: Sequence[Setting], own: OwnLists | None
) -> Mixture | None:
    """Choose the contents of mixed blocks that the server accepts; None without concurrency."""
    if max(setting.concurrency for setting in settings) < 2:
        return None
    vary = "temperature" not in client.access.leave_out
    # Lists after temperature have another form for greedy requests.
    before = own is None or not own.processed
    greedy = vary and before and accepts(client, prompt, 0.0, None)
    return Mixture.of(settings, vary=vary, greedy=greedy, seeds=accepts(client, prompt, 1.0, 0))


def _digest(plan: Plan, access: Access, clients: Sequence[Client]) -> str:
    """Hash all values that determine the requests and the way of reading answers."""
    servers = [[client.url, client.model] for client in clients]
    settings = [[dataclasses.asdict(s.parameters), s.concurrency] for s in plan.settings]
    return digest_of(
        [
            *(servers, settings, plan.prompts, plan.tokens, plan.block),
            *(access.chat, access.logprobs, sorted(access.leave_out)),
            {name: vars(plan.request)[name] for name in plan.request.stated},
            None if plan.mixture is None else dataclasses.asdict(plan.mixture),
        ]
    )


def _describe_reference(
    clients: Sequence[Client],
    model: LanguageModel | None,
    plan: Plan,
    *,
    processed: bool,
) -> str:
    if len(clients) > 1:
        found = f"the tokens of {clients[1].url} after the same text"
    elif model is not None:
        found = "a local model"
    else:
        when = "after" if processed else "before"
        largest = f"the {plan.listed} largest {when} temperature and truncation"
        found = f"its own log-probabilities, {largest}"
    if plan.request.stated:
        found += f"; with {plan.request}"
    return f"{found}; requests leave out {', '.join(plan.omitted)}" if plan.omitted else found
