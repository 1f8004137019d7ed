"""Language models behind one small protocol: batched logits, a cache, and rewinding."""

from otm.decoding.models.base import LanguageModel, Session
from otm.decoding.models.stateless import StatelessModel
from otm.decoding.models.table import TableModel

__all__ = ["LanguageModel", "Session", "StatelessModel", "TableModel"]
