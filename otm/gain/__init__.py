"""Estimate the gain of decoding with drafts, before any decoding.

There are two ways to estimate the gain. The first way is `report`, which reads pairs of
distributions from a source (`from_files`, `from_top_logprobs`, `from_models`), computes the
acceptance of every rule at every position, and writes a page. The second way begins with `record`,
which samples drafts and stores the distributions of both models. `block_efficiency` and
`first_step_acceptance` compare rules on the recordings of `record`, and `efficiency_bound` computes
an upper bound for every memoryless lossless verifier. `measure_latency` times the models. Given
measured times, `recommend` returns a `Recommendation`, and `report` includes one. `formulas` has
the formulas of Leviathan et al. (2023), and `overlapped` those for drafting while the target
verifies. `rates_under_load` compares setups by the number of requests in flight, and `fastest_tree`
finds the shape of a draft tree whose nodes gain more than they cost. `online_gamma` uses these
formulas to choose the number of drafts of a step. Decoding itself is in `otm.decoding`, and the
acceptance of one rule is in `otm.coupling`.
"""

from otm._core.means import Estimate, PairedMeans, Setup, clustered_mean
from otm.gain.along_text import accepted_along_text
from otm.gain.drawn_tree_budget import best_drawn_tree, drawn_hits
from otm.gain.efficiency import block_efficiency, first_step_acceptance
from otm.gain.efficiency_bound import efficiency_bound
from otm.gain.factorised import common_draft, factorised_draft
from otm.gain.fastest_tree import FastestTree, fastest_tree
from otm.gain.formulas import (
    acceptance_from_divergence,
    best_gamma,
    expected_tokens,
    lk_divergence,
    memory_accesses_factor,
    operations_factor,
    oracle_speedup,
    single_draft_improvement,
    walltime_improvement,
)
from otm.gain.latency import Latency
from otm.gain.load import LoadedRate, LoadTable, rates_under_load
from otm.gain.measured_latency import measure_latency, read_latency
from otm.gain.online_gamma import OnlineGamma, best_gamma_policy
from otm.gain.overlapped import mean_hit_rate, overlapped_improvement, parallel_improvement
from otm.gain.recommendation import Candidate, Recommendation, recommend
from otm.gain.recording import Recording, contexts_from, record, stream_recordings
from otm.gain.reports.model_pair import ModelPair
from otm.gain.reports.models import from_models
from otm.gain.reports.report import report
from otm.gain.reports.score_files import ScoreFiles, Source, from_files
from otm.gain.reports.settings import Lenience, LossySetting, Settings, Typical
from otm.gain.reports.summary import Summary
from otm.gain.reports.top_lists import TopLogprobs, from_top_logprobs
from otm.gain.tree_budget import PlannedTree, best_tree, rank_hits

__all__ = [
    "Candidate",
    "Estimate",
    "FastestTree",
    "Latency",
    "Lenience",
    "LoadTable",
    "LoadedRate",
    "LossySetting",
    "ModelPair",
    "OnlineGamma",
    "PairedMeans",
    "PlannedTree",
    "Recommendation",
    "Recording",
    "ScoreFiles",
    "Settings",
    "Setup",
    "Source",
    "Summary",
    "TopLogprobs",
    "Typical",
    "acceptance_from_divergence",
    "accepted_along_text",
    "best_drawn_tree",
    "best_gamma",
    "best_gamma_policy",
    "best_tree",
    "block_efficiency",
    "clustered_mean",
    "common_draft",
    "contexts_from",
    "drawn_hits",
    "efficiency_bound",
    "expected_tokens",
    "factorised_draft",
    "fastest_tree",
    "first_step_acceptance",
    "from_files",
    "from_models",
    "from_top_logprobs",
    "lk_divergence",
    "mean_hit_rate",
    "measure_latency",
    "memory_accesses_factor",
    "operations_factor",
    "oracle_speedup",
    "overlapped_improvement",
    "parallel_improvement",
    "rank_hits",
    "rates_under_load",
    "read_latency",
    "recommend",
    "record",
    "report",
    "single_draft_improvement",
    "stream_recordings",
    "walltime_improvement",
]
