"""Joint laws of the drafts: independent ones, as OTM-k has them, and others."""

from otm.draft_laws.base import DraftLaw
from otm.draft_laws.greedy import Greedy
from otm.draft_laws.hub import HubPairs
from otm.draft_laws.iid import IID
from otm.draft_laws.independent import Independent
from otm.draft_laws.joint import Joint
from otm.draft_laws.without_replacement import WithoutReplacement

__all__ = ["IID", "DraftLaw", "Greedy", "HubPairs", "Independent", "Joint", "WithoutReplacement"]
