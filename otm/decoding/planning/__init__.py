"""What decoding with drafts would gain, before it is done.

`record` draws drafts and keeps both models' laws; `block_efficiency` and `first_step_acceptance`
compare all rules on them; `measure` times the models; `recommend` puts the two together.
"""

from otm.decoding.planning.efficiency import block_efficiency, first_step_acceptance
from otm.decoding.planning.latency import Latency, measure
from otm.decoding.planning.paired_means import Estimate, PairedMeans, Setup
from otm.decoding.planning.recommendation import Candidate, Recommendation, recommend
from otm.decoding.planning.recording import Recording, contexts_of, record

__all__ = [
    "Candidate",
    "Estimate",
    "Latency",
    "PairedMeans",
    "Recommendation",
    "Recording",
    "Setup",
    "block_efficiency",
    "contexts_of",
    "first_step_acceptance",
    "measure",
    "recommend",
    "record",
]
