"""
An engineer's day: from a report to a decision
==============================================

Do drafts pay for these two models, with which settings, and is the text still the target's?

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
# You need two folders that ``from_pretrained`` can read, and typical texts.  This example uses the
# models of OTM; use your own instead.

torch.set_num_threads(1)  # faster for such small models
folder = Path(tempfile.mkdtemp())
for name in ("target", "small"):
    save_huggingface(load(name), folder / name)
unseen = (files("otm.models") / "data" / "king_james_bible_excerpt.txt").read_text()[-24_000:]
texts = [" ".join(unseen[start : start + 48].split()) for start in range(0, 24_000, 3_000)]
(folder / "texts.txt").write_text("\n\n".join(texts))

# %%
# **Sampling as in production.**  Acceptance depends on the sampling parameters, so the report must
# assume those of ``generate``.  Parameters that a model's folder leaves out have the defaults of
# transformers, such as top-k 50.

sampling = read_generation_config(folder / "target")
print(f"generate samples with {sampling}")

# %%
# **Cost of calls.**  A table of step times on this machine.  Without it, the report cannot say
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
assert recommendation is not None  # a report with latencies has a recommendation
print(recommendation)

# %%
# A setting pays if its whole interval is to the right of the line.

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
# **The same in** ``generate``.  The plug-in reads the report, and warns if a call uses other
# sampling parameters.

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
# **Is it still the target's text?**  Without sampling, every token must equal that of ``generate``
# alone.  With sampling, ``otm audit`` and ``otm audit server`` compare distributions.

alone = target.generate(**inputs, do_sample=False, max_new_tokens=60, pad_token_id=0)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the report does not cover greedy decoding
    assisted = target.generate(**inputs, do_sample=False, **options)
print(f"the same greedy text: {torch.equal(alone, assisted)}")

# %%
# **The decision.**

best = recommendation.best
pays = "pay" if recommendation.beats_autoregressive else "are not certain to pay"
print(
    f"On this machine drafts {pays}: {best.setup.rule}, K = {best.setup.k}, γ = {best.setup.gamma}"
)
