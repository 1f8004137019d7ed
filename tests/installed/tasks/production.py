from transformers import AutoModelForCausalLM, AutoTokenizer

from otm.integrations.huggingface import AssistedDecoding

target, draft = (AutoModelForCausalLM.from_pretrained(x).eval() for x in ("target", "small"))
inputs = AutoTokenizer.from_pretrained("target")("And it came", return_tensors="pt")
decoding = AssistedDecoding(draft, k=4, gamma=4, report="report")
target.generate(**inputs, custom_generate=decoding, max_new_tokens=20, do_sample=True, top_k=50)
print(decoding.generation)
