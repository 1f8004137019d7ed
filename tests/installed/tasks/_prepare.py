"""Write two models of Hugging Face and a text into the working directory."""

from pathlib import Path

from otm.models import load, save_huggingface

for name in ("target", "small"):
    save_huggingface(load(name), name)
Path("texts.txt").write_text("And it came to pass\n\nIn the beginning God\n\nThe king said")
