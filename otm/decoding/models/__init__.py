"""Language models behind one small protocol: batched logits, a cache, and rewinding.

Importing this loads no torch: the models that need it load it when they are made.
"""

from otm.decoding.models.base import LanguageModel, Session
from otm.decoding.models.gpt import GPT, GPTConfig, decode, encode, load
from otm.decoding.models.huggingface import HuggingFaceModel, check_same_vocabulary
from otm.decoding.models.ngram import NGramModel
from otm.decoding.models.stateless import StatelessModel
from otm.decoding.models.table import TableModel
from otm.decoding.models.uniform import UniformModel

__all__ = [
    "GPT",
    "GPTConfig",
    "HuggingFaceModel",
    "LanguageModel",
    "NGramModel",
    "Session",
    "StatelessModel",
    "TableModel",
    "UniformModel",
    "check_same_vocabulary",
    "decode",
    "encode",
    "load",
]
