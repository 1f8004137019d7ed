"""Sessions of a GPT against whole rows read at once, in float64; and texts as tokens."""

import numpy as np
import pytest
import torch

from otm.errors import InvalidInputError, InvalidParameterError
from otm.models.gpt.model import GPT, GPTConfig, decode, encode

CONFIG = GPTConfig(layers=2, width=12, heads=2, context_length=24, vocabulary=7)


def ids(*numbers):
    return np.array(numbers, dtype=np.int64)


def network(config=CONFIG, dtype=torch.float64, seed=0):
    return GPT.random(config, seed).to(dtype=dtype)


def whole(model, row):
    """Logits after every token of one row, by another path: one pass and no cache."""
    return model.logits(torch.tensor([row]))[0]


def padded(rows):
    width = max(map(len, rows), default=0)
    return ids(*(row + [-1] * (width - len(row)) for row in rows)).reshape(len(rows), width)


def check(model, logits, held, new, tolerance):
    for r, (old, more) in enumerate(zip(held, new, strict=True)):
        if more:
            expected = whole(model, old + more)[len(old) :]
            torch.testing.assert_close(logits[r, : len(more)], expected, **tolerance)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("seed", range(12))
def test_a_session_gives_what_whole_rows_give(seed, dtype, error):
    # a wrong position after a rewind, attention to what a longer row left behind, a copy from the
    # wrong place, rows in the wrong order
    rng = np.random.default_rng(seed)
    model = network(dtype=dtype)
    held = [[] for _ in range(rng.integers(1, 4))]
    session = model.start(len(held))
    for step in range(14):
        alike = rng.integers(2)  # rows of one length take another path through the code
        counts = np.full(len(held), rng.integers(4)) if alike else rng.integers(0, 4, len(held))
        new = [rng.integers(3, size=n).tolist() for n in counts]
        if step % 5 == 4:
            session.read(padded(new))
        else:
            logits = session.append(padded(new))
            assert logits.shape == (len(held), max(map(len, new)), 7)
            check(model, logits, held, new, {"rtol": 0, "atol": error})
        held = [old + more for old, more in zip(held, new, strict=True)]
        if rng.integers(3) == 0 and max(map(len, held)) < CONFIG.context_length - 4:
            continue  # rows are read on without a rewind
        rows = rng.integers(len(held), size=rng.integers(1, 6))
        if alike:
            rows = np.full_like(rows, rows[0])
        most = np.minimum([len(held[r]) for r in rows], CONFIG.context_length - 4)
        kept = np.maximum(most - rng.integers(3, size=1 if alike else len(rows)), 0)
        session.keep(rows, kept)
        held = [held[r][:n] for r, n in zip(rows, kept, strict=True)]


def test_a_row_that_reads_nothing_stays_as_it_is():
    # padding that is written into the cache, or moves the position on
    model = network()
    session = model.start(3)
    session.append(padded([[1, 2, 3], [], [4]]))
    session.append(padded([[], [5, 6], []]))
    logits = session.append(padded([[4], [1], [2]]))
    held = [[1, 2, 3], [5, 6], [4]]
    check(model, logits, held, [[4], [1], [2]], {"rtol": 0, "atol": 1e-12})


def test_nothing_to_read_is_no_error():
    session = network().start(2)
    assert session.append(ids([], [])).shape == (2, 0, 7)
    assert session.append(ids([-1], [-1])).shape == (2, 1, 7)
    session.keep(ids(), ids())
    assert session.append(np.zeros((0, 1), np.int64)).shape == (0, 1, 7)


def test_rows_of_a_session_do_not_know_of_each_other():
    model = network()
    rows = [[1, 2, 3, 4], [6, 6], [0]]
    logits = model.start(3).append(padded(rows))
    check(model, logits, [[]] * 3, rows, {"rtol": 0, "atol": 1e-12})


def test_scores_do_not_depend_on_what_follows():
    # a mask that lets a token see the next one, which a cache then cannot reproduce
    model = network()
    first, second = (model.logits(torch.tensor([[1, 2, last]]))[0] for last in (3, 4))
    assert torch.equal(first[:2], second[:2])
    assert not torch.equal(first[2], second[2])


def test_order_matters():
    # without positions a layer sees a set of tokens
    model = network()
    last = [model.logits(torch.tensor([row]))[0, -1] for row in ([1, 2, 3], [2, 1, 3])]
    assert not torch.allclose(*last, atol=1e-4)


def test_all_of_the_context_can_be_read_and_no_more():
    model = network()
    session = model.start(2)
    row = [i % 7 for i in range(24)]
    full = session.append(padded([row, row[:3]]))
    torch.testing.assert_close(full[0], whole(model, row), rtol=0, atol=1e-12)
    with pytest.raises(InvalidInputError, match=r"would have 25 tokens.* at most 24"):
        session.append(padded([[1], [2]]))
    # The error came before the session read a token.
    logits = session.append(padded([[], [5]]))
    check(model, logits, [row, row[:3]], [[], [5]], {"rtol": 0, "atol": 1e-12})


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (ids([7], [0]), "token 7 .* 0 to 6"),
        (ids([0]), "2 rows"),
        (ids([1, 2], [-1, 3]), "on the right"),
    ],
)
def test_tokens_that_cannot_be_read_are_refused(tokens, message):
    with pytest.raises(InvalidInputError, match=message):
        network().start(2).append(tokens)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"layers": 0}, "layers = 0"),
        ({"width": 12.0}, r"width = 12\.0"),
        ({"heads": 4}, "an even multiple"),
        ({"context_length": 10**9}, "context_length = 1000000000"),
        ({"vocabulary": True}, "vocabulary = True"),
    ],
)
def test_sizes_that_fit_no_model_are_refused(sizes, message):
    with pytest.raises(InvalidParameterError, match=message):
        GPTConfig(**{"layers": 2, "width": 12, "heads": 2, **sizes})


def test_weights_of_other_sizes_or_types_are_refused():
    weights = network().weights
    with pytest.raises(InvalidInputError, match=r"'embedding' has shape \(7, 12\).*\(9, 12\)"):
        GPT(GPTConfig(2, 12, 2, vocabulary=9), weights)
    with pytest.raises(InvalidInputError, match=r"'0\.attention_norm' has shape None"):
        GPT(CONFIG, {name: w for name, w in weights.items() if "attention_norm" not in name})
    with pytest.raises(InvalidInputError, match="same floating-point type"):
        GPT(CONFIG, {**weights, "norm": weights["norm"].float()})


def test_every_weight_counts():
    # a weight that is read from the file and never used
    model = network()
    tokens = torch.tensor([[1, 2, 3]])
    logits = model.logits(tokens)
    for name, weight in model.weights.items():
        other = GPT(
            CONFIG,
            {
                **model.weights,
                name: weight
                + torch.linspace(0, 1, weight.numel(), dtype=weight.dtype).reshape(weight.shape),
            },
        )
        assert not torch.allclose(other.logits(tokens), logits, atol=1e-6), name


@pytest.mark.parametrize("text", ["", "In the beginning", "né — 雨", "\x00\n"])
def test_texts_are_their_bytes(text):
    tokens = encode(text)
    assert all(0 <= token < 256 for token in tokens)
    assert decode(tokens) == text
    assert decode(np.array(tokens, dtype=np.int64)) == text


def test_bytes_that_are_no_text_do_not_stop_decoding():
    # a draft may end in the middle of a character
    assert decode(encode("é")[:1]) == "\ufffd"


@pytest.mark.parametrize("tokens", [[256], [-1], [10**30], [1.5], None, "a"])
def test_what_is_no_byte_is_refused(tokens):
    with pytest.raises(InvalidInputError, match="not a sequence of bytes"):
        decode(tokens)


@pytest.mark.parametrize("text", ["\ud800", None])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(InvalidInputError, match="cannot be encoded in UTF-8"):
        encode(text)


def test_what_is_no_path_is_refused():
    with pytest.raises(InvalidInputError, match="None is not a path"):
        GPT.load(None)
