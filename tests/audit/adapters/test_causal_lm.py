"""The stand-in model of transformers does what loops ask of it, or says that it does not."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from otm.audit import NOT_LOSSLESS, Instance, Report, loop, lossless
from otm.audit.adapters.huggingface import causal_lm
from otm.audit.instances import INSTANCES
from otm.errors import InvalidParameterError, UnknownMethodError
from otm.models import TableModel

pytestmark = pytest.mark.usefixtures("no_diagnosis")

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TABLE = TableModel.random(3, 4, np.random.default_rng(7), max_weight=9)


def read(*contexts: tuple[int, ...]) -> Any:
    """Rows of the table, after the tokens that a model should have read: the reference."""
    return torch.tensor(np.array([TABLE.probs(c).astype(float) for c in contexts]))


def probs(output: Any) -> Any:
    return output.logits.double().softmax(-1)


def crop(cache: Any, length: int) -> None:
    """Shorten a cache: by how many tokens, as versions from 5 ask for and 4.57 takes too."""
    if (more := cache.get_seq_length() - length) > 0:
        cache.crop(-more)


@pytest.mark.parametrize("use_cache", [None, True])
def test_a_cache_is_returned_and_works(use_cache: bool | None) -> None:
    """Catches no cache for `use_cache=True`, the false alarm on the usual loop."""
    lm = causal_lm(TABLE)
    cache = lm(torch.tensor([[0, 1]]), use_cache=use_cache).past_key_values
    assert isinstance(cache, transformers.DynamicCache)
    assert cache.get_seq_length() == 2
    seen = probs(lm(torch.tensor([[2, 2]]), past_key_values=cache))
    assert torch.allclose(seen[0], read((0, 1, 2), (0, 1, 2, 2)))
    crop(cache, 3)
    seen = probs(lm(torch.tensor([[1]]), past_key_values=cache))
    assert torch.allclose(seen[0], read((0, 1, 2, 1)))
    assert lm(torch.tensor([[0]]), use_cache=False).past_key_values is None


def test_all_rows_are_read() -> None:
    """Catches rows that are dropped from the second on."""
    output = causal_lm(TABLE)(torch.tensor([[0, 1], [2, 1], [1, 1]]))
    assert torch.allclose(probs(output)[:, 1], read((0, 1), (2, 1), (1, 1)))


def test_rows_of_a_cache_are_reordered_repeated_and_selected() -> None:
    """Catches a model that remembers its rows elsewhere than in the cache."""
    lm = causal_lm(TABLE)
    cache = lm(torch.tensor([[0, 1], [2, 0]])).past_key_values
    cache.batch_repeat_interleave(2)
    seen = probs(lm(torch.tensor([[0], [1], [0], [1]]), past_key_values=cache))
    assert torch.allclose(seen[:, 0], read((0, 1, 0), (0, 1, 1), (2, 0, 0), (2, 0, 1)))
    cache.batch_select_indices(torch.tensor([3, 0]))
    cache.reorder_cache(torch.tensor([1, 0]))
    seen = probs(lm(torch.tensor([[2], [2]]), past_key_values=cache))
    assert torch.allclose(seen[:, 0], read((0, 1, 0, 2), (2, 0, 1, 2)))


def test_masked_tokens_are_no_context() -> None:
    """Catches a mask that is not looked at: of padding, and of what the cache holds."""
    lm, mask = causal_lm(TABLE), torch.tensor([[0, 0, 1], [1, 1, 1]])
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    ids = torch.tensor([[2, 2, 0], [1, 2, 0]])
    output = lm(ids, attention_mask=mask, position_ids=positions)
    assert torch.allclose(probs(output)[:, -1], read((0,), (1, 2, 0)))
    mask = torch.cat([mask, torch.tensor([[1], [1]])], dim=1)
    later = lm(
        torch.tensor([[1], [1]]),
        attention_mask=mask,
        position_ids=mask.sum(-1, keepdim=True) - 1,
        past_key_values=output.past_key_values,
    )
    assert torch.allclose(probs(later)[:, 0], read((0, 1), (1, 2, 0, 1)))
    no_positions = lm(ids, attention_mask=torch.tensor([[False, True, True], [True] * 3]))
    assert torch.allclose(probs(no_positions)[:, -1], read((2, 0), (1, 2, 0)))


def test_a_hole_in_the_cache_is_masked() -> None:
    """Rejected drafts of a row may stay in the cache of a batch, if mask and positions skip them.

    Catches positions that are not kept with the tokens: the wrong ones below would pass.
    """
    lm = causal_lm(TABLE)

    def behind_a_hole(position: int) -> Any:
        cache = lm(torch.tensor([[0, 1, 2]])).past_key_values
        return lm(
            torch.tensor([[2]]),
            past_key_values=cache,
            attention_mask=torch.tensor([[1, 1, 0, 1]]),
            position_ids=torch.tensor([[position]]),
        )

    assert torch.allclose(probs(behind_a_hole(2))[0], read((0, 1, 2)))
    assert torch.allclose(probs(behind_a_hole(3))[0], read((0, 1, 2)).roll(1, -1))


def test_positions_order_the_tokens() -> None:
    """Catches a context in the order of the cache, and padding that absolute positions count."""
    ids, positions = torch.tensor([[1, 0, 2]]), torch.tensor([[5, 4, 6]])
    assert torch.allclose(probs(causal_lm(TABLE)(ids, position_ids=positions))[0, 1:],
                          read((0, 1), (0, 1, 2)))  # fmt: skip
    mask = torch.tensor([[0, 1, 1]])
    for kind, shift in (("relative", 0), ("absolute", 1)):
        lm = causal_lm(TABLE, positions=kind)
        wrong = probs(lm(ids, attention_mask=mask))[0, -1]
        assert torch.allclose(wrong, read((0, 2))[0].roll(shift))
        right = lm(ids, attention_mask=mask, position_ids=torch.tensor([[0, 0, 1]]))
        assert torch.allclose(probs(right)[0, -1], read((0, 2))[0])


def test_a_state_does_not_forget() -> None:
    """Catches a recurrent state that `crop` rewinds, a copy that shares it, and read padding."""
    lm = causal_lm(TABLE, cache="recurrent")
    cache = lm(
        torch.tensor([[0, 1], [2, 0]]), attention_mask=torch.tensor([[0, 1], [1, 1]])
    ).past_key_values
    before = copy.deepcopy(cache)
    new = torch.tensor([[2], [2]])
    lm(new, past_key_values=cache)
    crop(cache, 2)
    assert cache.get_seq_length() == before.get_seq_length() == 2
    seen = probs(lm(new - 1, past_key_values=cache, attention_mask=torch.ones(2, 3)))
    assert torch.allclose(seen[:, 0], read((1, 2, 1), (2, 0, 2, 1)))
    seen = probs(lm(new - 1, past_key_values=before))
    assert torch.allclose(seen[:, 0], read((1, 1), (2, 0, 1)))


def test_a_window_loses_its_oldest_tokens() -> None:
    """Catches a rotating cache that `crop` restores, and one that is wrong without `crop`."""
    lm = causal_lm(TABLE, cache="rotating")
    cache = lm(torch.tensor([[0, 1, 2]])).past_key_values
    before = copy.deepcopy(cache)
    seen = probs(lm(torch.tensor([[2, 1]]), past_key_values=cache))
    assert torch.allclose(seen[0], read((0, 1, 2, 2), (0, 1, 2, 2, 1)))
    assert cache.get_seq_length() == 5
    crop(cache, 3)
    assert cache.get_seq_length() == 3
    lost = probs(lm(torch.tensor([[0]]), past_key_values=cache))
    assert torch.allclose(lost[0], read((2, 0)).roll(1, -1))
    kept = probs(lm(torch.tensor([[0]]), past_key_values=before))
    assert torch.allclose(kept[0], read((0, 1, 2, 0)))


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(UnknownMethodError, match="there are keys and values, recurrent, rotating"):
        causal_lm(TABLE, cache="static")
    with pytest.raises(UnknownMethodError, match="there are relative, absolute"):
        causal_lm(TABLE, positions="learned")


def test_what_else_a_call_may_ask_for() -> None:
    lm, ids = causal_lm(TABLE), torch.tensor([[0, 1, 2]])
    whole = lm(ids).logits
    assert torch.equal(lm(ids, logits_to_keep=2).logits, whole[:, -2:])
    assert torch.equal(lm(ids, num_logits_to_keep=1).logits, whole[:, -1:])
    assert torch.equal(lm(ids, logits_to_keep=torch.tensor([0, 2])).logits, whole[:, [0, 2]])
    logits, cache = lm(ids, return_dict=False)
    assert torch.equal(logits, whole)
    assert cache.get_seq_length() == 3
    lm(ids[:, :1], past_key_values=cache, cache_position=torch.tensor([3]))
    lm(ids, output_attentions=False, output_hidden_states=None)


IDS = {"input_ids": torch.tensor([[0, 1]])}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs_embeds": torch.zeros(1, 2, 1)}, "do not support inputs_embeds"),
        (IDS | {"inputs_embeds": torch.zeros(1, 2, 1)}, "do not support inputs_embeds"),
        (IDS | {"output_hidden_states": True}, "do not support output_hidden_states"),
        (IDS | {"output_attentions": True}, "do not support output_attentions"),
        (IDS | {"labels": torch.tensor([[0, 1]])}, "do not support labels"),
        (IDS | {"attention_mask": torch.ones(1, 1, 2, 2)}, "attention_mask has shape"),
        (IDS | {"attention_mask": torch.ones(1, 3)}, r"it must have shape \[1, 2\]"),
        (IDS | {"attention_mask": torch.tensor([[0.0, -1e9]])}, "attention_mask must be 1"),
        (IDS | {"attention_mask": {"full_attention": None}}, "attention_mask is"),
        (IDS | {"position_ids": torch.tensor([[0, 1, 2]])}, "position_ids has shape"),
        (IDS | {"cache_position": torch.tensor([1, 2])}, "cache_position"),
        (IDS | {"past_key_values": ((torch.zeros(1, 1, 1, 1),) * 2,)}, "give a DynamicCache"),
        ({"input_ids": torch.tensor([0, 1])}, "input_ids is"),
        ({"input_ids": [[0, 1]]}, "input_ids is"),
        ({"input_ids": torch.zeros(0, 2, dtype=torch.long)}, "with B, T ≥ 1"),
        ({"input_ids": torch.tensor([[0.0, 1.0]])}, "must contain integers"),
        ({"input_ids": torch.tensor([[0, 3]])}, "the unmasked token 3"),
    ],
    ids=lambda case: "" if isinstance(case, str) else "-".join(case),
)
def test_what_it_cannot_honour_is_refused(arguments: dict[str, Any], message: str) -> None:
    """Catches an argument that is ignored without a word."""
    with pytest.raises(InvalidParameterError, match=message):
        causal_lm(TABLE)(**arguments)


def test_rows_that_do_not_fit_the_cache_are_refused() -> None:
    lm = causal_lm(TABLE)
    cache = lm(torch.tensor([[0, 1]])).past_key_values
    with pytest.raises(InvalidParameterError, match="2 rows, but past_key_values has 1"):
        lm(torch.tensor([[0], [1]]), past_key_values=cache)


def test_generate_makes_a_padded_batch() -> None:
    """Catches a stand-in that the generation of transformers itself cannot use for two rows."""
    certain = TableModel({(): [1, 0, 0], (0,): [0, 1, 0], (1,): [0, 0, 1], (1, 0): [1, 0, 0]})
    ids = torch.tensor([[1, 0], [0, 1]])
    output = causal_lm(certain).generate(
        ids,
        attention_mask=torch.tensor([[0, 1], [1, 1]]),
        do_sample=False,
        max_new_tokens=2,
        eos_token_id=None,
        pad_token_id=0,
    )
    assert output[:, 2:].tolist() == [[1, 2], [2, 0]]


def sampled(row: Any) -> int:
    return int(row.softmax(-1).multinomial(1))


def first_call_makes_the_cache(
    target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int
) -> Any:
    ids, past, output = torch.tensor([prompt]), None, list[int]()
    for _ in range(max_tokens):
        result = causal_lm(target)(ids, past_key_values=past, use_cache=True)
        past, ids = result.past_key_values, torch.tensor([[sampled(result.logits[0, -1])]])
        output.append(int(ids))
    return output


def padded_on_the_left(target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int) -> Any:
    """Row 0 is the prompt, padded; row 1 is longer, and is nobody's."""
    pads, output = 2, list[int]()
    for _ in range(max_tokens):
        ids = [*prompt, *output]
        mask = torch.ones(2, pads + len(ids), dtype=torch.long)
        mask[0, :pads] = 0
        batch = torch.tensor([[1] * pads + ids, [0, 1, *ids]])
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        rows = causal_lm(target)(batch, attention_mask=mask, position_ids=positions).logits
        output.append(sampled(rows[0, -1]))
    return output


def speculative(crops: bool) -> Any:
    """Make a loop with a cache of the target, which drops rejected drafts, or does not."""

    def decode(target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int) -> Any:
        out, cache = list(prompt), transformers.DynamicCache()
        while len(out) < len(prompt) + max_tokens:
            xs: list[int] = []
            d = []
            for _ in range(gamma):
                d.append(causal_lm(draft)(torch.tensor([out + xs])).logits[0, -1].softmax(-1))
                xs.append(int(d[-1].multinomial(1)))
            new = torch.tensor([(out + xs)[cache.get_seq_length() if crops else -gamma - 1 :]])
            rows = causal_lm(target)(new, past_key_values=cache, logits_to_keep=gamma + 1)
            t = rows.logits[0].softmax(-1)
            for i, x in enumerate(xs):
                if torch.rand(()) * d[i][x] >= t[i, x]:
                    out += [*xs[:i], int((t[i] - d[i]).clamp(min=0).multinomial(1))]
                    break
            else:
                out += [*xs, int(t[-1].multinomial(1))]
            if crops:
                crop(cache, len(out) - 1)
        return out[len(prompt) : len(prompt) + max_tokens]

    return decode


def audit(decode: Any) -> Report:
    """Audit on one pair, where a rejection may lead to the row after 0 0."""
    known = INSTANCES["rows differ"]
    few = [Instance(known.draft, known.target, 1)]
    return lossless(loop(decode), instances=few, examples=0, max_seconds=300)


@pytest.mark.parametrize(
    "decode",
    [first_call_makes_the_cache, padded_on_the_left, speculative(crops=True)],
    ids=["use_cache", "padded", "cropped"],
)
def test_right_loops_of_transformers_pass(decode: Any) -> None:
    """Catches the false alarms on them."""
    report = audit(decode)
    assert report.lossless, str(report)
    assert report.method == "breakpoints"


def unmasked(target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int) -> Any:
    """Read padding on the left as text."""
    output: list[int] = []
    for _ in range(max_tokens):
        ids = torch.tensor([[0, *prompt, *output]])
        output.append(sampled(causal_lm(target)(ids).logits[0, -1]))
    return output


def positions_stand_still(target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int) -> Any:
    past, ids, output = None, torch.tensor([prompt]), list[int]()
    for _ in range(max_tokens):
        places = torch.arange(ids.shape[1])[None]
        result = causal_lm(target)(ids, past_key_values=past, position_ids=places)
        past, ids = result.past_key_values, torch.tensor([[sampled(result.logits[0, -1])]])
        output.append(int(ids))
    return output


@pytest.mark.parametrize(
    "decode",
    [speculative(crops=False), unmasked, positions_stand_still],
    ids=["not cropped", "unmasked", "positions"],
)
def test_wrong_loops_of_transformers_are_found(decode: Any) -> None:
    """Negative controls: a stand-in that forgives would pass them."""
    assert audit(decode).verdict == NOT_LOSSLESS
