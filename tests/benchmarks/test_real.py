"""The benchmarks of real models, on a tiny random one: what they record, not how fast it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.real import early_layers, models, stages
from benchmarks.real.models import KINDS, Real
from otm._core.means import PairedMeans, Setup
from otm.decoding import SamplingParameters
from otm.models import HuggingFaceModel

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Real:
    """Make a peaked random model of bytes with the name and the drafts of SmolLM2."""
    from otm.models.huggingface.export import _tokenizer

    monkeypatch.setattr(early_layers, "LAYERS", 1)
    monkeypatch.setattr(early_layers, "LENGTH", 8)
    monkeypatch.setattr(early_layers, "PROMPTS", ("Which day is it?", "Why?"))
    monkeypatch.setattr(models, "CACHE", tmp_path)
    untrained = ("early layers", "prompt lookup", "n-grams")
    monkeypatch.setitem(models.DRAFTS, "SmolLM2", untrained)
    monkeypatch.setitem(models.MAIN, "SmolLM2", untrained[0])
    monkeypatch.setattr(Real, "encode", lambda _, prompt: tuple(prompt.encode()[-16:]))
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
    config = transformers.LlamaConfig(
        vocab_size=256, max_position_embeddings=128, eos_token_id=0, **sizes, **heads
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.model.norm.weight.mul_(20)
    target = HuggingFaceModel(model, tokenizer=_tokenizer(transformers))
    return Real("SmolLM2", target, {"T 1": SamplingParameters()})


def test_the_prompts_are_forty_different_ones() -> None:
    """Bug: a kind that is too short, or a prompt that is there twice."""
    import tomllib

    text = (Path(models.__file__).parent / "prompts.toml").read_text(encoding="utf-8")
    prompts = tomllib.loads(text)
    assert {kind: len(prompts[kind]) for kind in prompts} == dict.fromkeys(KINDS, 10)
    whole = [prompt for of_kind in prompts.values() for prompt in of_kind]
    assert len(set(whole)) == 40
    assert not set(whole) & set(early_layers.PROMPTS), "the head is fitted on other prompts"
    lengths = [len(prompt.split()) for prompt in prompts["summary"]]
    assert min(lengths) >= 120
    assert max(lengths) <= 250


def test_all_layers_give_the_head_of_the_whole_model(tiny: Real) -> None:
    """Bug: states of another layer, or a head that is fitted to states before the last norm."""
    rng = np.random.default_rng(0)
    texts = rng.integers(256, size=(8, 40)).tolist()
    early_layers.LAYERS = 2
    draft = early_layers.early_layers(tiny.model, texts)
    ids = torch.tensor(texts[:1])
    with torch.no_grad():
        expected, fitted = tiny.model(ids).logits, draft(ids).logits
    assert (fitted - expected).abs().max() < 0.02 * expected.abs().max()


def test_efficiency_compares_rules_on_the_same_records(tiny: Real) -> None:
    """Bug: prompts of two kinds under one number; a name of a rule that the figure lacks."""
    from benchmarks.real.efficiency import efficiency

    found = efficiency(tiny, prompts=1, tokens=6)
    (setting,) = found["settings"].values()
    rows = {(row["kind"], row["rule"], row["k"]): row["mean"] for row in setting["rows"]}
    for row in setting["differences"]:
        mean, less = (rows[row["kind"], row[name], row["k"]] for name in ("rule", "less"))
        assert mean - less == pytest.approx(row["mean"])
    assert {kind for kind, _, _ in rows} == {"all", *KINDS}
    assert {row["draft"] for row in setting["drafts"]} == set(models.DRAFTS["SmolLM2"])
    loop = setting["loop"]
    assert loop["measured"]["mean"] - loop["predicted"]["mean"] == pytest.approx(
        loop["difference"]["mean"]
    )


def test_the_prompts_of_a_kind_are_told_apart() -> None:
    """Bug: a prompt without contexts moves the next kind's prompts into its place."""
    from benchmarks.real.efficiency import of_prompts

    setup = Setup("optimal", 2, 4)
    values = {setup: np.array([1.0, 2.0, 3.0, 4.0])}
    means = PairedMeans("tokens", values, np.array([0, 2, 3, 3]))
    assert of_prompts(means, 0, 2).values[setup].tolist() == [1.0]
    assert of_prompts(means, 1, 2).values[setup].tolist() == [2.0, 3.0, 4.0]


def test_speed_counts_tokens_and_calls(tiny: Real) -> None:
    """Bug: the tokens of the prompt counted as new, or calls of the draft as the target's."""
    from benchmarks.real.speed import PLAIN, fast_ways, in_turns, slow_ways, speed

    prompt = tiny.encode("Why is it")
    turns = in_turns(fast_ways(tiny, 6) | slow_ways(tiny, 6), [prompt])
    for name, (turn,) in turns.items():
        assert 1 <= turn.calls <= turn.tokens <= 6, name
    assert turns[PLAIN][0].calls == turns[PLAIN][0].tokens
    rows = speed(tiny, prompts=1, tokens=4)["rows"]
    assert {row["kind"] for row in rows} == {"all", *KINDS}
    json.dumps(rows)


def test_the_interval_of_a_median() -> None:
    """Bug: an interval one place too narrow.  With 10 values, the 2nd and the 9th cover 97.9 %."""
    from benchmarks.real.speed import median_with_interval

    found = median_with_interval(np.arange(10.0))
    assert found == {"median": 4.5, "low": 1.0, "high": 8.0}
    assert median_with_interval(np.arange(5.0)) == {"median": 2.0, "low": None, "high": None}


def test_greedy_texts_are_compared(tiny: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a rule that is left out, or a difference that is not seen."""
    from benchmarks.real import identities

    rules = ("optimal", "walk and keep")
    monkeypatch.setattr(identities, "tree_rules", lambda: rules)
    rows = identities.identities(tiny, prompts=1, tokens=10)["rows"]
    assert {row["rule"] for row in rows} == {"chain", "block", *rules}
    assert not [row for row in rows if row["different"]]
    assert identities.first_difference((1, 2, 3), (1, 2)) == 2
    assert identities.first_difference((1, 2, 3), (1, 5, 3)) == 1


def test_differences_of_greedy_texts_are_explained(
    tiny: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the plain text compared with itself, so that a verifier that is not greedy passes."""
    from benchmarks.real import identities, rounding

    monkeypatch.setattr(identities, "tree_rules", lambda: ())
    rows = rounding.rounding(tiny, prompts=1, tokens=6)["rows"]
    assert [row["verdicts"] for row in rows] == [{"identical": len(KINDS)}] * 2
    monkeypatch.setattr(identities, "GREEDY", SamplingParameters(temperature=5))
    rows = rounding.rounding(tiny, prompts=1, tokens=6)["rows"]
    assert all(row["verdicts"].get("not explained") for row in rows)


def test_pairs_reject_the_wrong_verifier_alone(tiny: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: exact probabilities of other tokens than the first two; a control that is accepted."""
    from benchmarks.real import pairs

    monkeypatch.setattr(pairs, "tree_rules", lambda: ("walk and keep",))
    monkeypatch.setitem(pairs.MAIN, "SmolLM2", "n-grams")
    monkeypatch.setitem(pairs.DRAFTS, "SmolLM2", ("n-grams",))
    rows = pairs.pairs(tiny, texts=800)["rows"]
    assert [row["method"] for row in rows if not row["accepted"]] == [rows[-1]["method"]]


def test_an_iteration_is_recorded_as_texts(tiny: Real) -> None:
    from benchmarks.real.iteration import iteration

    found = iteration(tiny, tokens=12)
    assert len(found["drafts"]) == 4
    assert len(found["output"]) > found["accepted"]


def test_stages_have_records_of_their_own_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Bug: a stage that runs again although its record is there, or not after a change of code."""
    from benchmarks.real import __main__ as program

    monkeypatch.setattr(program, "RESULTS", tmp_path)
    monkeypatch.setitem(
        stages.STAGES,
        "iteration",
        stages.Stage("", lambda size: {"a": size.tokens}, stages.Size(1, 96)),
    )
    options: Any = program.options_of(["--threads", str(torch.get_num_threads())])
    program.perform("iteration", options)
    path = tmp_path / "real-iteration.json"
    assert json.loads(path.read_text(encoding="utf-8"))["a"] == 96
    assert program.is_done(path)
    monkeypatch.setattr(program, "code", lambda: "other code")
    assert not program.is_done(path)


def test_their_tokens_are_sorted_inside_the_context_alone() -> None:
    """Bug: an audit of the mended transformers that audits the installed one, or the reverse."""
    from transformers.generation.candidate_generator import AssistantToTargetTranslator

    from benchmarks.real.their_drafts import in_order

    class Letters:
        def __init__(self, letters: str) -> None:
            self.vocabulary = {letter: ord(letter) - 97 for letter in letters}

        def get_vocab(self) -> dict[str, int]:
            return dict(self.vocabulary)

        def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
            return {"input_ids": []}

    def order() -> list[int]:
        made = AssistantToTargetTranslator(Letters("abcdef"), Letters("fbda"), 6)
        return list(made.target_to_assistant_input_ids.values())

    with in_order():
        assert order() == [0, 1, 3, 5]
    assert order() == [5, 1, 3, 0]
