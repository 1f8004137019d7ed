"""
An engineer's day: from a report to a decision
==============================================

Would drafts pay for these two models, with which settings, and is the text still the target's?

Needs OTM with its extras huggingface and report.
"""

from __future__ import annotations

import tempfile
import warnings
from importlib.resources import files
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from otm.decoding import read_generation_config
from otm.gain import Settings, from_models, measure_latency, report
from otm.integrations.huggingface import AssistedDecoding
from otm.models import HuggingFaceModel, load, save_huggingface

# %%
# Two folders that ``from_pretrained`` reads, and texts like those that will be asked for.  Here
# they are the models that come with OTM; take your own instead.

torch.set_num_threads(1)  # faster, for models so small
folder = Path(tempfile.mkdtemp())
for name in ("target", "small"):
    save_huggingface(load(name), folder / name)
unseen = (files("otm.models") / "data" / "king_james_bible_excerpt.txt").read_text()[-24_000:]
texts = [" ".join(unseen[start : start + 48].split()) for start in range(0, 24_000, 3_000)]
(folder / "texts.txt").write_text("\n\n".join(texts))

# %%
# **As it will be served.**  Acceptance depends on how is sampled, so the report must assume what
# ``generate`` does.  What a model's folder leaves out is as in transformers, whose top-k is 50.

sampling = read_generation_config(folder / "target")
print(f"generate samples with {sampling}")

# %%
# **What calls cost, here.**  A table of step times on this machine; without one nobody can say
# whether more drafts pay.

target, draft = (
    AutoModelForCausalLM.from_pretrained(folder / name).eval() for name in ("target", "small")
)
latency = measure_latency(
    HuggingFaceModel(target), HuggingFaceModel(draft), 40, gammas=[2, 4], ks=[1, 4], repeats=5
)

# %%
# **The report**: ``report.html`` has all tables and plots, and ``report.json`` the numbers.

positions = from_models(folder / "small", folder / "target", folder / "texts.txt")
settings = Settings(ks=(1, 4), sampling=sampling)
summary = report(positions, folder / "report", settings, gammas=(2, 4), latency=latency)
recommendation = summary.recommendation
assert recommendation is not None  # a report has one if a latency is given
print(recommendation)

# %%
# What pays is to the right of the line, with its whole interval.

ways = recommendation.candidates[::-1]
names = [f"{way.setup.rule}, K = {way.setup.k}, γ = {way.setup.gamma}" for way in ways]
speeds = [way.speedup for way in ways]
reach = [[each.mean - each.low for each in speeds], [each.high - each.mean for each in speeds]]
figure, axes = plt.subplots(figsize=(7, 0.6 + 0.26 * len(ways)), layout="constrained")
axes.errorbar([each.mean for each in speeds], names, xerr=reach, fmt="o", capsize=3)
axes.axvline(1, color="gray", linestyle="--")
axes.set_xlabel("speed over decoding without drafts")
plt.show()

# %%
# **The same in** ``generate``.  The plug is told of the report, and warns of a call that samples in
# another way.

tokenizer = AutoTokenizer.from_pretrained(folder / "target")
inputs = tokenizer(["And it came to pass"], return_tensors="pt")
decoding = AssistedDecoding(draft, k=4, gamma=4, rule="optimal", report=folder / "report")
options = {"custom_generate": decoding, "max_new_tokens": 60, "pad_token_id": 0}
torch.manual_seed(0)
text = target.generate(**inputs, do_sample=True, **options)
print(tokenizer.decode(text[0]))
print(decoding.generation)

# %%

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    target.generate(**inputs, do_sample=True, top_k=5, **options)
print(said[-1].message)

# %%
# **Is it still the target's text?**  Without sampling it must be token for token what ``generate``
# writes alone; for sampling, ``otm audit`` and ``otm audit server`` compare distributions.

alone = target.generate(**inputs, do_sample=False, max_new_tokens=60, pad_token_id=0)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the report is not about greedy decoding
    assisted = target.generate(**inputs, do_sample=False, **options)
print(f"the same greedy text: {torch.equal(alone, assisted)}")

# %%
# **The decision.**

best = recommendation.best
pays = "pay" if recommendation.beats_autoregressive else "are not certain to pay"
print(
    f"On this machine drafts {pays}: {best.setup.rule}, K = {best.setup.k}, γ = {best.setup.gamma}"
)
