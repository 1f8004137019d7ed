"""Models in files, and those that come with the package."""

import json
import re
import struct
from importlib.resources import files

import pytest
import torch
from safetensors.torch import save_file

from otm.errors import InvalidInputError, UnknownMethodError
from otm.models import load
from otm.models.gpt.model import GPT, HEADER, SHIPPED, GPTConfig
from otm.models.gpt.train import PRESETS, default_text, loss, split

CONFIG = GPTConfig(layers=1, width=8, heads=2, context_length=16)
WEIGHTS = files("otm.models.gpt") / "weights"


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.safetensors"
    GPT.random(CONFIG, seed=3).save(path)
    return path


def test_a_model_comes_back_as_it_was_saved(saved):
    model, again = GPT.random(CONFIG, seed=3), GPT.load(str(saved))
    assert again.config == CONFIG
    assert again.weights.keys() == model.weights.keys()
    assert all(torch.equal(again.weights[name], w) for name, w in model.weights.items())


def test_half_precision_takes_half_the_bytes_and_is_read_as_float32(saved, tmp_path):
    model, path = GPT.random(CONFIG, seed=3), tmp_path / "half.safetensors"
    model.save(path, dtype=torch.float16)
    weights = GPT.load(path).weights
    assert all(torch.equal(weights[name], w.half().float()) for name, w in model.weights.items())
    assert saved.stat().st_size - path.stat().st_size == pytest.approx(2 * CONFIG.size, abs=64)


def rewritten(saved, **header):
    """Put something else into the header, and leave the weights alone."""
    content = saved.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    old = json.loads(content[8 : 8 + length])
    old["__metadata__"] = header
    new = json.dumps(old).encode()
    saved.write_bytes(struct.pack("<Q", len(new)) + new + content[8 + length :])


SIZES = {"layers": 1, "width": 8, "heads": 2, "context_length": 16, "vocabulary": 256}


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda f: f.unlink(), id="missing"),
        pytest.param(lambda f: f.write_bytes(b""), id="empty"),
        pytest.param(lambda f: f.write_bytes(f.read_bytes()[:-1]), id="cut short"),
        pytest.param(lambda f: f.write_bytes(f.read_bytes()[:30]), id="header cut short"),
        pytest.param(lambda f: f.write_bytes(b"\xff" * 200), id="bytes of something else"),
        pytest.param(lambda f: torch.save({}, f), id="a pickle"),
        pytest.param(lambda f: save_file({"w": torch.ones(2)}, f), id="another model"),
        pytest.param(lambda f: rewritten(f, **{HEADER: "{"}), id="no JSON"),
        pytest.param(lambda f: rewritten(f, **{HEADER: "[1]"}), id="no sizes"),
        pytest.param(lambda f: rewritten(f, **{HEADER: '{"layers": 1}'}), id="sizes missing"),
        *(
            pytest.param(
                lambda f, name=name, value=value: rewritten(
                    f, **{HEADER: json.dumps(SIZES | {name: value})}
                ),
                id=f"{name} {value}",
            )
            for name, value in [("width", 16), ("layers", 2), ("heads", 3), ("layers", 2**20),
                                ("context_length", 10**15), ("dropout", 0.1)]
        ),
    ],
)  # fmt: skip
def test_files_that_are_no_models_are_refused_in_one_line(saved, spoil):
    # a traceback from another library, a pickle that is run, memory for what a header claims
    spoil(saved)
    with pytest.raises(InvalidInputError) as caught:
        GPT.load(saved)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_written_is_refused_in_one_line(tmp_path):
    # safetensors' own error, or the weights copied and rounded first
    model = GPT.random(CONFIG, seed=3)
    (tmp_path / "file").touch()
    for place in (tmp_path / "missing" / "model", tmp_path / "file" / "model"):
        with pytest.raises(InvalidInputError, match=r"there is no folder .*; create it first"):
            model.save(place)
    with pytest.raises(InvalidInputError, match="is a folder; give a file in it"):
        model.save(tmp_path)
    with pytest.raises(
        InvalidInputError, match="None is not a path; give the path of a file to write"
    ):
        model.save(None)
    with pytest.raises(InvalidInputError, match="cannot be written"):
        model.save("null\0")
    with pytest.raises(InvalidInputError, match=r"^file 'nnn.* cannot be written") as caught:
        model.save(tmp_path / ("n" * 300))
    assert "\n" not in str(caught.value)


def test_models_that_do_not_ship_are_refused_by_name():
    with pytest.raises(UnknownMethodError, match="'huge'; there are target, large, medium, small"):
        load("huge")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_models_know_the_text_as_well_as_their_readme_says(name):
    # weights of another training than the one that is described, or with rows mixed up
    readme = (WEIGHTS / "README.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| `{name}` \|(.*)\|$", readme, re.MULTILINE)
    assert row is not None
    cells = [cell.strip() for cell in row[1].split("|")]
    model, (_, held_out) = load(name), split(default_text())
    assert model.config == PRESETS[name].config
    assert int(cells[0].replace(",", "")) == model.config.size
    assert loss(model, held_out) == pytest.approx(float(cells[-2]), abs=6e-4)


def test_shipped_models_are_small():
    sizes = [len((WEIGHTS / f"{name}.safetensors").read_bytes()) for name in SHIPPED]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) < 3e6
