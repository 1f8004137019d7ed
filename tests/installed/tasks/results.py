from transformers import AutoModelForCausalLM

from otm.decoding import spectr
from otm.models import HuggingFaceModel, encode

target, draft = (AutoModelForCausalLM.from_pretrained(x).eval() for x in ("target", "small"))
models = HuggingFaceModel(target), HuggingFaceModel(draft)
generation = spectr(*models, [encode("And it came")], k=4, gamma=4, max_tokens=20, seed=0)
print(generation)
print(generation._repr_html_())
