"""Responses of servers: read as their interface writes them, and bounded as the lists they hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otm
from otm.errors import InvalidInputError
from otm.gain import Settings, from_top_logprobs, report
from otm.gain.reports.blocks import measure_all
from otm.optimum.top_logprobs import alpha_interval_from_logprobs

VOCABULARY, LISTED, LENGTH = 9, 3, 5
WORDS = ["a", " b", "c", "d", "é", "f\n", '"', "日", "th"]
SETTINGS = Settings(ks=(1, 3))
RNG = np.random.default_rng(5)
TEXTS = RNG.integers(0, VOCABULARY, size=(4, LENGTH))
LAWS = {name: RNG.dirichlet(np.full(VOCABULARY, 0.5), (4, LENGTH)) for name in ("draft", "target")}

Writer = Callable[[Any, Any], Any]


def tops(law: Any, sampled: int) -> dict[int, float]:
    """List what a server lists: the most likely tokens, and behind them the sampled one."""
    best = np.argsort(-law)[:LISTED].tolist()
    return {int(x): float(np.log(law[x])) for x in dict.fromkeys([*best, int(sampled)])}


def completion(text: Any, laws: Any) -> Any:
    lists = [
        {WORDS[x]: log for x, log in tops(law, token).items()}
        for token, law in zip(text, laws, strict=True)
    ]
    return {"tokens": [WORDS[x] for x in text], "top_logprobs": lists, "text_offset": [0] * 5}


def by_id(text: Any, laws: Any) -> Any:
    lists = [
        {f"token_id:{x}": log for x, log in tops(law, token).items()}
        for token, law in zip(text, laws, strict=True)
    ]
    return {"tokens": [f"token_id:{x}" for x in text], "top_logprobs": lists}


def entry(x: int, log: float, *, ids: bool) -> dict[str, Any]:
    made = {"token": WORDS[x], "logprob": log, "bytes": list(WORDS[x].encode())}
    return made | ({"id": int(x)} if ids else {})


def chat(text: Any, laws: Any, *, ids: bool = False) -> Any:
    places = []
    for token, law in zip(text, laws, strict=True):
        listed = [entry(x, log, ids=ids) for x, log in tops(law, token).items()]
        places.append({**entry(token, float(np.log(law[token])), ids=ids), "top_logprobs": listed})
    return {"content": places, "refusal": None}


def numbered(text: Any, laws: Any) -> Any:
    return chat(text, laws, ids=True)


WRITERS: dict[str, Writer] = {
    "completions": completion, "ids of vLLM": by_id, "chats": chat, "ids of llama.cpp": numbered,
}  # fmt: skip


def write(folder: Path, responses: dict[str, list[Any]], end: str = "json") -> list[Path]:
    paths = []
    for name, logprobs in responses.items():
        found = [{"choices": [{"index": 0, "logprobs": each}]} for each in logprobs]
        paths.append(folder / f"{name}.{end}")
        lines = "\n".join(map(json.dumps, found)) if end == "jsonl" else json.dumps(found)
        paths[-1].write_text(lines, encoding="utf-8")
    return paths


def responses(writer: Writer) -> dict[str, list[Any]]:
    return {
        name: [writer(text, law) for text, law in zip(TEXTS, laws, strict=True)]
        for name, laws in LAWS.items()
    }


def expected(k: int) -> Any:
    """Bounds from the lists without what may have been added: [4, LENGTH, 2]."""
    found = np.empty((4, LENGTH, 2))
    for place in np.ndindex(4, LENGTH):
        lists = []
        for laws in LAWS.values():
            listed = tops(laws[place], TEXTS[place])
            if min(listed, key=listed.__getitem__) == TEXTS[place]:
                del listed[int(TEXTS[place])]
            lists.append(listed)
        interval = alpha_interval_from_logprobs(lists[0], lists[1], k)
        found[place] = float(interval.lower), float(interval.upper)
    return found


@pytest.mark.parametrize("end", ["json", "jsonl"])
@pytest.mark.parametrize("form", WRITERS)
def test_the_bounds_are_those_of_the_lists(form: str, end: str, tmp_path: Path) -> None:
    """Catches positions and models that are exchanged, and a sampled token that is listed."""
    source = from_top_logprobs(*write(tmp_path, responses(WRITERS[form]), end))
    assert source.prompts.tolist() == np.repeat(np.arange(4), LENGTH).tolist()
    found = measure_all(source, SETTINGS, tmp_path / "out")["interval"]
    for i, k in enumerate(SETTINGS.ks):
        np.testing.assert_allclose(found[:, i].reshape(4, LENGTH, 2), expected(k), atol=1e-12)
        for place, (low, high) in zip(np.ndindex(4, LENGTH), found[:, i].tolist(), strict=True):
            assert low <= otm.alpha(LAWS["draft"][place], LAWS["target"][place], k) <= high


def test_a_sampled_token_would_break_the_bounds() -> None:
    """Negative control: taken as one of the most likely, it claims a bound that is false."""
    broken = 0
    for place in np.ndindex(4, LENGTH):
        lists = [tops(laws[place], TEXTS[place]) for laws in LAWS.values()]
        true = otm.alpha(LAWS["draft"][place], LAWS["target"][place], 3)
        try:
            interval = alpha_interval_from_logprobs(lists[0], lists[1], 3, vocabulary=VOCABULARY)
        except InvalidInputError:
            broken += 1
        else:
            broken += not float(interval.lower) <= true <= float(interval.upper)
    assert broken > 2


def test_positions_without_lists_are_left_out_and_counted(tmp_path: Path) -> None:
    """Catches half characters, which stand for many tokens, and the first token of a prompt."""
    made = responses(completion)
    made["draft"][0]["top_logprobs"][0] = None  # with echo
    made["target"][0]["top_logprobs"][0] = None
    made["draft"][1]["top_logprobs"][2] = {"a": -0.5, "\ufffd": -1.5}
    made["target"][2]["top_logprobs"][3] = {"": -0.1}
    source = from_top_logprobs(*write(tmp_path, made))
    assert source.prompts.size == 4 * LENGTH - 3
    assert source.name.endswith("without 3 positions")
    found = measure_all(source, SETTINGS, tmp_path / "out")["interval"]
    kept = np.delete(expected(1).reshape(-1, 2), [0, LENGTH + 2, 2 * LENGTH + 3], axis=0)
    np.testing.assert_allclose(found[:, 0], kept, atol=1e-12)


def test_two_tokens_of_one_text_are_not_one(tmp_path: Path) -> None:
    """Catches byte tokens such as <0x2C>, written as "," like the token of the comma itself."""
    made = responses(chat)
    place = made["target"][3]["content"][1]
    other = next(top for top in place["top_logprobs"] if top["token"] != place["token"])
    place["top_logprobs"].append({**other, "logprob": -4.0})
    assert from_top_logprobs(*write(tmp_path, made)).prompts.size == 4 * LENGTH - 1
    by_bytes = responses(chat)  # incomplete characters, which their bytes distinguish
    for place in by_bytes["draft"][0]["content"]:
        for j, top in enumerate(place["top_logprobs"]):
            top |= {"token": "\ufffd", "bytes": [0xE6, j]}
    assert from_top_logprobs(*write(tmp_path, by_bytes)).prompts.size == 4 * LENGTH
    for place in by_bytes["draft"][0]["content"]:  # a number of bytes that would fill the memory
        place["top_logprobs"][0]["bytes"] = 10**15
    assert from_top_logprobs(*write(tmp_path, by_bytes)).prompts.size == 3 * LENGTH


def test_the_last_tokens_may_differ(tmp_path: Path) -> None:
    """Catches an error whenever the first tokens after a prompt differ."""
    made = responses(completion)
    made["draft"][0]["tokens"][-1] = "another"
    assert from_top_logprobs(*write(tmp_path, made)).prompts.size == 4 * LENGTH


def test_a_logarithm_of_nothing_is_no_entry(tmp_path: Path) -> None:
    """Catches −9999 for an unlikely token, after which all unlisted ones count as impossible."""
    made = responses(completion)
    made["draft"][0]["top_logprobs"][0]["zz"] = -9999.0
    found = measure_all(from_top_logprobs(*write(tmp_path, made)), SETTINGS, tmp_path / "out")
    np.testing.assert_allclose(found["interval"][0, 0], expected(1)[0, 0], atol=1e-12)


Made = dict[str, list[Any]]


def changed(change: Callable[[Made], Any]) -> Callable[[], Made]:
    def make() -> Made:
        made = responses(completion)
        change(made)
        return made

    return make


def lengthen(made: Made) -> None:
    laws = np.append(LAWS["draft"][0], LAWS["draft"][0][:1], axis=0)
    made["draft"][0] = completion(np.append(TEXTS[0], 1), laws)


def list_sampled_alone(made: Made) -> None:
    for each in made["draft"]:
        each["top_logprobs"] = [{token: -0.5} for token in each["tokens"]]


def list_in_turn(made: Made) -> None:
    for n in range(4):
        made["draft" if n % 2 else "target"][n]["top_logprobs"] = [None] * LENGTH


NO_BYTES = {"token": "a", "bytes": [256], "top_logprobs": []}

WRONG: dict[str, tuple[Callable[[], Made], str]] = {
    "another text": (
        changed(lambda made: made["draft"][1]["tokens"].__setitem__(2, "x")),
        "response 1 of .*: the texts differ at token 2; .* only after the same text",
    ),
    "a longer text": (changed(lengthen), "texts of 6 and 5 tokens"),
    "another number": (changed(lambda made: made["draft"].pop()), "3 responses and .* 4"),
    "no list": (changed(lambda made: made["draft"].__setitem__(0, None)), "no lists of log-prob"),
    "no log-probabilities": (
        changed(lambda made: made["draft"][0].update(top_logprobs=None)), "no lists of log-prob"
    ),
    "texts as numbers": (
        changed(lambda made: made["draft"][0]["top_logprobs"].__setitem__(0, {"a": "b"})),
        "no lists of log-prob",
    ),
    "bytes as numbers": (
        changed(lambda made: made["draft"].__setitem__(1, {"content": [NO_BYTES]})),
        "no lists of log-prob",
    ),
    "ids and texts": (lambda: responses(by_id) | {"draft": responses(completion)["draft"]},
                      "some tokens by ids and others by texts"),
    "more than all probability": (
        changed(
            lambda made: made["draft"][0]["top_logprobs"].__setitem__(0, {"a": -0.1, "c": -0.1})
        ),
        "a list whose probabilities sum to 1.80967",
    ),
    "the sampled tokens alone": (changed(list_sampled_alone), "except the sampled ones"),
    "two halves of lists": (
        changed(list_in_turn), r"no position with lists of both models .* \(20 are skipped\)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_compared_is_refused(case: str, tmp_path: Path) -> None:
    """Catches lists that are compared after different texts, and a traceback of a reader."""
    make, message = WRONG[case]
    with pytest.raises(InvalidInputError, match=message) as caught:
        from_top_logprobs(*write(tmp_path, make()))
    assert "\n" not in str(caught.value)


def test_one_file_of_responses_is_half(tmp_path: Path) -> None:
    """Catches an error about "draft" and "target" for what a server has sent."""
    draft, _ = write(tmp_path, responses(completion), "jsonl")
    with pytest.raises(InvalidInputError, match="a response of one server; give two files"):
        from_top_logprobs(draft)


def test_a_report_of_responses_names_both_files(tmp_path: Path) -> None:
    """Catches results of one file that are taken for those of another."""
    paths = write(tmp_path, responses(chat))
    summary = report(from_top_logprobs(*paths), tmp_path / "out", SETTINGS)
    assert summary.source == "file 'draft.json' and file 'target.json'"
    row = summary.bounds[1]
    assert row["lower"].mean == pytest.approx(expected(3)[..., 0].mean())
    made = responses(chat)
    made["target"][0]["content"][0]["top_logprobs"][0]["logprob"] -= 0.01
    write(tmp_path, made)
    with pytest.raises(InvalidInputError, match="differs in its source"):
        report(from_top_logprobs(*paths), tmp_path / "out", SETTINGS)
