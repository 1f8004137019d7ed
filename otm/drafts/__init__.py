"""Joint distributions of drafts: i.i.d. drafts, as OTM-k assumes, and other kinds.

`otm.decoding.drafters` draws drafts in a decoding loop.
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
