"""Joint distributions of the drafts: independent ones, as OTM-k has them, and others.

Not here: what draws them in a loop (`otm.decoding.drafters`).
"""

from typing import TYPE_CHECKING

from otm._core.lazy import lazy

if TYPE_CHECKING:
    from otm.drafts.base import DraftDistribution
    from otm.drafts.greedy import Greedy
    from otm.drafts.hub_pairs import HubPairs
    from otm.drafts.iid import IID
    from otm.drafts.independent import Independent
    from otm.drafts.joint import Joint
    from otm.drafts.top import Top
    from otm.drafts.without_replacement import WithoutReplacement
else:
    __getattr__, __dir__ = lazy(__name__)

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
