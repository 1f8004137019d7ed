"""A GGUF file becomes a folder of Hugging Face that needs no GGUF reader."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from otm.errors import DownloadError
from otm.models.downloads.conversion import convert
from otm.models.huggingface.export import PRINTABLE

WIDTH, LAYERS = 32, 1


def write_gguf(path: Path) -> np.ndarray:
    """Write a Llama with the bytes and "ab" as tokens, and return its embedding.

    The embedding is quantized to Q4_1: a block of 32 numbers is a scale and an offset in float16,
    then 16 bytes of two digits.
    """
    gguf = pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    rng = np.random.default_rng(0)
    others = iter(range(256, 512))
    tokens = [chr(byte if byte in PRINTABLE else next(others)) for byte in range(256)] + ["ab"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(16)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(257)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 257)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    shapes = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (WIDTH, WIDTH),
        "attn_v": (WIDTH, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (WIDTH, WIDTH),
        "ffn_up": (WIDTH, WIDTH),
        "ffn_down": (WIDTH, WIDTH),
        "attn_norm": (WIDTH,),
        "ffn_norm": (WIDTH,),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"blk.0.{name}.weight", rng.normal(size=shape).astype(np.float32))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    scales = np.array([0.25, -1.0], np.float16)
    digits = rng.integers(0, 256, (257, 16), dtype=np.uint8)
    blocks = np.concatenate([np.tile(scales.view(np.uint8), (257, 1)), digits], 1)
    writer.add_tensor("token_embd.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    # the lower digits are the first 16 numbers of a block
    return np.concatenate([digits & 15, digits >> 4], 1) * 0.25 - 1.0


def test_a_quantized_file_becomes_float32_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bugs: a folder that says it is quantized, weights in another type, no tokenizer, a bar."""
    embedding = write_gguf(tmp_path / "tiny.gguf")
    folder = tmp_path / "made"
    convert(tmp_path / "tiny.gguf", folder)
    assert not capsys.readouterr().err
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    assert np.array_equal(model.get_input_embeddings().weight.detach().numpy(), embedding)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("nébab").input_ids == [110, 195, 169, 98, 256]


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    """Bug: a traceback from the depths of transformers."""
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF but not really")
    with pytest.raises(DownloadError, match=r"transformers cannot read tiny\.gguf"):
        convert(tmp_path / "tiny.gguf", tmp_path / "made")
