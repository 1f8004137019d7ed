"""Joint distributions of the drafts: independent ones, as OTM-k has them, and others."""

from otm.drafts.base import DraftDistribution
from otm.drafts.greedy import Greedy
from otm.drafts.hub import HubPairs
from otm.drafts.iid import IID
from otm.drafts.independent import Independent
from otm.drafts.joint import Joint
from otm.drafts.top import Top
from otm.drafts.without_replacement import WithoutReplacement

__all__ = [
    "IID",
    "DraftDistribution",
    "Greedy",
    "HubPairs",
    "Independent",
    "Joint",
    "Top",
    "WithoutReplacement",
]
