"""Language models with one small protocol: batched logits, a cache, and rewinding.

Importing this package does not import torch; a model that needs torch imports it when constructed.

Drafters that use these models are in `otm.decoding.drafters`.
"""

from otm.models.base import LanguageModel, Session, StatelessModel
from otm.models.conditioned import ConditionedModel
from otm.models.downloads.folder import download
from otm.models.gpt.model import GPT, decode, encode
from otm.models.gpt.transformer import GPTConfig
from otm.models.hidden_states.model import HiddenStateModel
from otm.models.huggingface.export import save_huggingface
from otm.models.huggingface.model import HuggingFaceModel, check_same_vocabulary
from otm.models.named import load
from otm.models.ngram import NGramModel
from otm.models.table import TableModel, UniformModel
from otm.models.vocabularies.intersection import IntersectionModel
from otm.models.vocabularies.spelling import Spelling

__all__ = [
    "GPT",
    "ConditionedModel",
    "GPTConfig",
    "HiddenStateModel",
    "HuggingFaceModel",
    "IntersectionModel",
    "LanguageModel",
    "NGramModel",
    "Session",
    "Spelling",
    "StatelessModel",
    "TableModel",
    "UniformModel",
    "check_same_vocabulary",
    "decode",
    "download",
    "encode",
    "load",
    "save_huggingface",
]
