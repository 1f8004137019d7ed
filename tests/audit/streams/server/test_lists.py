"""What lists say of the next token: checked against the whole distribution, for every token."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from otm.audit.streams.server.distributions.lists import probs_from_list, probs_from_logits
from otm.audit.streams.server.distributions.token_probs import TokenProbs
from otm.audit.streams.server.evidence.group_evidence import CLASS_COUNT, FAMILY_COUNT
from otm.decoding import SamplingParameters
from otm.errors import EndpointError

SAMPLING = [
    SamplingParameters(),
    SamplingParameters(temperature=0.6),
    SamplingParameters(temperature=1.5, top_k=4),
    SamplingParameters(top_k=20),
    SamplingParameters(top_p=0.7),
    SamplingParameters(top_p=0.999),
    SamplingParameters(temperature=0.7, top_p=0.8),
    SamplingParameters(temperature=0.7, top_k=5, top_p=0.6),
]


def served(logs: np.ndarray, token: int, listed: int) -> dict[str, float]:
    """Return the list of a server that samples `token`: first it, then the most probable tokens."""
    top = np.argsort(-logs, kind="stable")[:listed]
    return {f"token_id:{i}": float(logs[i]) for i in (token, *top)}


def same(one: TokenProbs | None, other: TokenProbs | None) -> bool:
    assert one is not None
    assert other is not None
    return (one.tokens, one.rest, one.unseen) == (other.tokens, other.rest, other.unseen)


@pytest.mark.parametrize("parameters", SAMPLING, ids=str)
@pytest.mark.parametrize("ties", [False, True])
def test_the_law_is_that_of_the_server_given_that_a_token_counts(
    parameters: SamplingParameters, ties: bool
) -> None:
    """Bugs: a distribution that depends on the sampled token, a wrong rest, temperature twice."""
    rng = np.random.default_rng(5)
    for listed in (6, 12):
        logits = rng.normal(0, 2, 30)
        logits = np.round(logits) if ties else logits
        logs = logits - np.logaddexp.reduce(logits)
        truth = parameters(logs)
        lists = {f"token_id:{y}": served(logs, y, listed) for y in range(30)}
        laws = [probs_from_list(entries, listed, parameters, y) for y, entries in lists.items()]
        law = laws[0]
        assert law is not None
        assert all(same(law, other) for other in laws)
        counts = np.array([law.of(f"token_id:{y}") is not None for y in range(30)])
        assert math.isclose(float(law.probs.sum()) + law.rest, 1)
        inside = [int(token.removeprefix("token_id:")) for token in law.tokens]
        if not ties:  # at ties other servers keep other tokens
            given = truth / truth[counts].sum()
            np.testing.assert_allclose(law.probs, given[inside], atol=1e-12)
            outside = counts.copy()
            outside[inside] = False
            assert law.rest == pytest.approx(given[outside].sum(), abs=1e-12)
        else:
            given = truth[inside] / truth[inside].sum()
            np.testing.assert_allclose(law.probs, given * (1 - law.rest))
        np.testing.assert_allclose(law.merged_probs, law.merge_other(law))
        masses = np.append(law.probs, law.rest)
        bits = -sum(mass * math.log2(mass) for mass in masses if mass > 0)
        assert law.entropy == pytest.approx(bits)
        for y in np.flatnonzero(counts):
            assert np.abs(law.deviation(f"token_id:{y}").sum(axis=1)).max() < 1e-12
        whole = probs_from_logits(logs, parameters)
        assert ties or len(whole.tokens) == np.count_nonzero(truth)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_local_models_distribution_lists_the_probable_tokens(temperature: float) -> None:
    logs = np.random.default_rng(0).normal(0, 2, 500)
    truth = np.exp(logs / temperature) / np.exp(logs / temperature).sum()
    law = probs_from_logits(logs, SamplingParameters(temperature=temperature))
    count = len(law.tokens)
    assert count < 500
    assert law.rest <= 0.05 < law.rest + law.probs[-1] or count == 32
    mean = sum(truth[y] * law.deviation(f"token_id:{y}") for y in range(500))
    np.testing.assert_allclose(mean, 0, atol=1e-12)
    # What a truncation excludes is known, so it lists all that stays.
    kept = probs_from_logits(logs, SamplingParameters(temperature=temperature, top_p=0.97))
    stay = np.count_nonzero(np.cumsum(np.sort(truth)[::-1]) < 0.97)
    assert (kept.rest, stay <= len(kept.tokens) <= stay + 1) == (0.0, True)
    assert law.probs.base is None  # not a view of the whole vocabulary


def test_processed_lists_are_taken_as_they_are() -> None:
    greedy = SamplingParameters(temperature=0.1, top_k=2)
    logs = {"token_id:3": math.log(0.75), "token_id:1": math.log(0.25), "token_id:0": -9999.0}
    law = probs_from_list(logs, 20, greedy, "token_id:1", processed=True)
    assert law is not None
    assert (law.tokens, law.rest) == (("token_id:3", "token_id:1"), 0.0)
    np.testing.assert_allclose(law.probs, [0.75, 0.25])


HALVES = {1: "", 4: "", 7: "\ufffd", 11: "\ufffd", 12: "", 20: ""}


def spelled(logs: np.ndarray, token: int, listed: int, halves: dict[int, str]) -> dict[str, float]:
    """List what a server of strings sends: tokens of the same string overwrite each other."""
    top = np.argsort(-logs, kind="stable")[:listed]
    return {halves.get(int(i), f" w{i}"): float(logs[i]) for i in (*top, token)}


@pytest.mark.parametrize("parameters", SAMPLING, ids=str)
@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("halves", [{}, HALVES], ids=["whole", "halves"])
def test_the_law_of_strings_is_that_given_that_a_token_counts(
    parameters: SamplingParameters, chat: bool, halves: dict[int, str]
) -> None:
    """For every sampled token.

    Bugs: whether a place counts depends on the sampled token, so that a right server deviates;
    other tokens of a half character's string among "all others"; ranks that strings hide.
    """
    rng = np.random.default_rng(8)
    counted = 0.0
    for listed, spread in itertools.product((3, 4, 6, 9, 12), (1.0, 2.0, 2.5)):
        logits = rng.normal(0, spread, 30)
        logs = logits - np.logaddexp.reduce(logits)
        truth = parameters(logs)
        deviation, mass = np.zeros((FAMILY_COUNT, CLASS_COUNT)), 0.0
        for y in range(30):
            name = halves.get(y, f" w{y}")
            entries = spelled(logs, y, listed, halves)
            law = probs_from_list(entries, listed, parameters, name, chat=chat)
            if law is not None and law.of(name) is not None:
                assert not name.strip() or halves.get(y) is None or not law.places.get(name)
                deviation += truth[y] * law.deviation(name)
                mass += truth[y]
        assert np.abs(deviation).max() < 1e-3  # a list of 0.999 is taken for all tokens
        counted += mass
    assert counted > 3  # of 15 lists


@pytest.mark.parametrize("end", ["<|end|>", "</s>", "[|endofturn|]", "[EOS]"])
def test_half_characters_and_end_tokens_do_not_count(end: str) -> None:
    """Bugs: half characters counted as one token; an end token that is never returned."""
    probs = {"a": 0.4, "\ufffd": 0.2, end: 0.2, "b": 0.1, "c": 0.05}
    logs = {token: math.log(prob) for token, prob in probs.items()}
    law = probs_from_list(logs, 5, SamplingParameters(), "a")
    assert law is not None
    assert law.tokens == ("a", "b")
    np.testing.assert_allclose(law.probs, [0.8, 0.2])
    for token in (end, "", "\ufffd", "c", "other"):
        assert law.of(token) is None
    assert probs_from_list({"": -2.1}, 20, SamplingParameters(), "") is None
    assert probs_from_list({"": -2.1, "\ufffd": -3.0}, 20, SamplingParameters(), "") is None


@pytest.mark.parametrize("logs", [[-0.1, -0.1], [0.0, 0.0]])
def test_a_list_of_no_distribution_is_refused(logs: list[float]) -> None:
    entries = {f"token_id:{i}": log for i, log in enumerate(logs)}
    with pytest.raises(EndpointError, match="do not belong to a distribution"):
        probs_from_list(entries, 2, SamplingParameters(), "token_id:0")


def test_logarithms_in_bfloat16_are_those_of_a_distribution() -> None:
    """Bug: a right server whose list sums to 1.006 ends the audit."""
    logs = np.log(np.array([0.4, 0.3, 0.2, 0.1], dtype=np.float32))
    bits = logs.view(np.uint32) & 0xFFFF0000  # to the next one towards zero
    rounded = bits.view(np.float32).tolist()
    assert 1.001 < math.fsum(map(math.exp, rounded)) < 1.01
    entries = {f"token_id:{i}": log for i, log in enumerate(rounded)}
    law = probs_from_list(entries, 4, SamplingParameters(), "token_id:0")
    assert law is not None
    assert math.isclose(float(law.probs.sum()) + law.rest, 1)


def test_a_shorter_list_than_asked_for_is_refused() -> None:
    entries = {"token_id:0": -1.0, "token_id:1": -2.0, "token_id:2": -3.0}
    with pytest.raises(EndpointError, match=r"lists 3 .* --logprobs 3"):
        probs_from_list(entries, 5, SamplingParameters(), "token_id:0")
    with pytest.raises(EndpointError, match="--logprobs 2"):  # the sampled token may be added
        probs_from_list(entries, 5, SamplingParameters(), "token_id:2")


def kept_at_random(
    logs: np.ndarray, parameters: SamplingParameters, rng: np.random.Generator
) -> np.ndarray:
    """Probabilities of a server that keeps any of equal tokens at the edge of top-k or top-p."""
    scores = logs / parameters.temperature
    order = np.lexsort((rng.random(logs.size), -scores))
    probs = np.exp(scores - scores.max())
    if parameters.top_k is not None:
        probs[order[parameters.top_k :]] = 0
    if parameters.top_p is not None:
        before = np.cumsum(probs[order]) - probs[order]
        probs[order[before >= parameters.top_p * probs.sum()]] = 0
    return np.asarray(probs / probs.sum())


EDGES = [*SAMPLING, SamplingParameters(top_p=0.01), SamplingParameters(temperature=0.2, top_p=0.9)]


@pytest.mark.parametrize("parameters", EDGES, ids=str)
@pytest.mark.parametrize("name", ["token_id:", " w"])
@pytest.mark.parametrize(("grid", "decimals"), [(0.5, None), (0.5, 2), (0.0, 2)])
def test_equal_tokens_at_the_edge_do_not_count(
    parameters: SamplingParameters, name: str, grid: float, decimals: int | None
) -> None:
    """Logits in half precision are often equal, and rounded lists hide which token is likelier.

    Bug: the first by its name of two equal tokens at the edge of top-p was taken for the one kept.
    """
    rng = np.random.default_rng(6)
    error = 0.0 if decimals is None else 0.5 * 10.0**-decimals
    counted = 0.0
    for _ in range(25):
        logits = rng.normal(0, 1.5, 14)
        logits = np.round(logits / grid) * grid if grid else logits
        truth = kept_at_random(logits, parameters, rng)
        logs = logits - np.logaddexp.reduce(logits)
        logs = logs if decimals is None else logs.round(decimals)
        deviation = np.zeros((FAMILY_COUNT, CLASS_COUNT))
        for y in np.flatnonzero(truth):
            entries = {f"{name}{i}": float(logs[i]) for i in (*np.argsort(-logs)[:10], y)}
            law = probs_from_list(entries, 10, parameters, f"{name}{y}", error=error)
            if law is not None and law.of(f"{name}{y}") is not None:
                deviation += truth[y] * law.deviation(f"{name}{y}")
                counted += truth[y]
        limit = max(1e-3, error / min(parameters.temperature, 1))
        assert np.maximum(deviation, 0).sum(axis=1).max() < limit
    assert counted > 3  # of 25 lists


@pytest.mark.parametrize("temperature", [0.4, 0.7, 0.95])
@pytest.mark.parametrize("top_p", [0.6, 0.9])
def test_a_short_list_shows_what_top_p_excludes(temperature: float, top_p: float) -> None:
    """Below temperature 1, the unlisted tokens of a list have little weight.

    Bugs: a bound that is too small, so that a right server samples excluded tokens; no bound, so
    that a server that ignores top-p samples only tokens that do not count.
    """
    rng = np.random.default_rng(8)
    parameters, excluded = SamplingParameters(temperature=temperature, top_p=top_p), 0.0
    for spread in np.linspace(2, 4, 20):
        logits = rng.normal(0, spread, 80)
        logs = logits - np.logaddexp.reduce(logits)
        truth, free = parameters(logs), SamplingParameters(temperature=temperature)(logs)
        for y in range(80):
            law = probs_from_list(served(logs, y, 20), 20, parameters, f"token_id:{y}")
            if law is not None and law.of(f"token_id:{y}") == 0:
                assert truth[y] == 0
                excluded += free[y] / 20
    assert excluded > 0.3 * (1 - top_p)


@pytest.mark.parametrize("chat", [False, True])
def test_whether_a_list_is_whole_does_not_depend_on_its_token(chat: bool) -> None:
    """The distribution is truncated to five tokens, and the list has four of these tokens.

    Bug: the list was whole if the fifth was sampled, and else left that token out.
    """
    logs = np.log([0.4, 0.3, 0.15, 0.1, 0.05])
    deviation = np.zeros((FAMILY_COUNT, CLASS_COUNT))
    for y in range(5):
        entries = spelled(logs, y, 4, {})
        law = probs_from_list(entries, 4, SAMPLING[0], f" w{y}", processed=True, chat=chat)
        if law is not None and law.of(f" w{y}") is not None:
            deviation += math.exp(logs[y]) * law.deviation(f" w{y}")
    assert np.abs(deviation).max() < 1e-12


def test_many_rare_tokens_are_much_at_high_temperatures() -> None:
    """Bug: a list of 0.9995 was whole at temperature 2, where the others have 0.9 together."""
    logs = np.log(np.concatenate([[0.5, 0.4995], np.full(50_000, 1e-8)]))
    for parameters in (SamplingParameters(temperature=2.0), SamplingParameters(temperature=0.5)):
        law = probs_from_list(spelled(logs, 99, 20, {}), 20, parameters, " w99")
        assert law is not None
        assert (law.of(" w99") is None) == (parameters.temperature > 1)


def test_a_whole_list_of_ids_may_be_rounded() -> None:
    """Bug: three tokens after top-k, rounded to two decimals, sum to 0.997: an error."""
    entries = {"token_id:1": -0.91, "token_id:2": -1.1, "token_id:3": -1.35}
    assert math.fsum(map(math.exp, entries.values())) < 0.999
    law = probs_from_list(entries, 20, SAMPLING[0], "token_id:3", processed=True, error=0.005)
    assert law is not None
    assert len(law.tokens) == 3
