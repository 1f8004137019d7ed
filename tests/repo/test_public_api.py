"""The public names, pinned: a name that goes, or comes by accident, fails here."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
from collections import Counter
from pathlib import Path

import pytest

import otm
import otm.coupling
import otm.errors
import otm.optimum.bounds
import otm.optimum.cut
from otm import (
    BlockCertificate,
    BlockSolution,
    Certificate,
    Interval,
    Problem,
    Solution,
    SparseProbs,
)
from otm.coupling import PLANS, ResidualPlan, Selection, TransportPlan
from otm.drafts import DraftDistribution

NAMES = {
    "otm": [
        "BlockCertificate",
        "BlockSolution",
        "Certificate",
        "ComparedRule",
        "Comparison",
        "Interval",
        "OTMError",
        "Problem",
        "Solution",
        "SparseProbs",
        "alpha",
        "compare",
        "solve",
        "solve_block",
    ],
    "otm.audit": [
        "LOSSLESS",
        "METHODS",
        "NOT_LOSSLESS",
        "UNDECIDED",
        "Adapter",
        "Counterexample",
        "Instance",
        "RecordedReport",
        "Report",
        "batch",
        "chain",
        "chains",
        "loop",
        "lossless",
        "recorded",
        "stateful",
        "token_rule",
        "tree",
        "windowed",
    ],
    "otm.audit.adapters.flashinfer": [
        "chain_speculative_sampling",
    ],
    "otm.audit.adapters.huggingface": [
        "causal_lm",
        "generate",
        "speculative_sampling",
    ],
    "otm.audit.adapters.otm_verifiers": [
        "kernel",
        "spectr_step",
        "speculative_loop",
    ],
    "otm.audit.adapters.vllm": [
        "rejection_sample",
    ],
    "otm.audit.diagnose.known_bugs": [
        "KNOWN_BUGS",
        "SUSPECTED",
        "KnownBug",
    ],
    "otm.audit.streams.server": [
        "ServerReport",
        "audit_server",
    ],
    "otm.certificate": [
        "CertificateRefusedError",
        "check",
        "load",
    ],
    "otm.coupling": [
        "PLANS",
        "AcceptanceRule",
        "ArgmaxLenientPlan",
        "Cactus",
        "CascadePlan",
        "Distance",
        "EnsemblePlan",
        "GreedyRule",
        "GridKSeq",
        "GridOptimal",
        "ImportanceSelection",
        "KSeq",
        "LenientPlan",
        "ListCoupling",
        "MaximalCoupling",
        "NaiveTargetSampling",
        "NonIterativeRejection",
        "OptimalPlan",
        "PlanBuilder",
        "RecursiveRejection",
        "RecursiveRejectionWithoutReplacement",
        "RelaxedPlan",
        "ResidualPlan",
        "Selection",
        "SpecHub",
        "SyntheticAcceptance",
        "TablePlan",
        "TargetOnly",
        "Transport",
        "TransportPlan",
        "TypicalAcceptance",
        "acceptance_ratio",
        "distance_to_target",
    ],
    "otm.decoding": [
        "AcceleratedDrafter",
        "Beams",
        "BestFirstDrafter",
        "Branching",
        "CoupledVerifier",
        "DecodingOptions",
        "Detection",
        "DeviceVerifier",
        "DraftNode",
        "Drafter",
        "DynamicTreeDrafter",
        "GammaPolicy",
        "Generation",
        "GreedyBlockVerifier",
        "Hypothesis",
        "LogitsProcessor",
        "ModelDrafter",
        "NonAutoregressiveDrafter",
        "OnlineGamma",
        "PromptLookup",
        "Randomness",
        "SamplingParameters",
        "Seconds",
        "Shape",
        "StaticTreeDrafter",
        "Step",
        "StringDrafter",
        "TargetProbs",
        "Verifier",
        "WatermarkLaw",
        "WatermarkVerifier",
        "acceptance_from_divergence",
        "autoregressive",
        "beam_search",
        "best_gamma",
        "best_gamma_policy",
        "coupled",
        "detect_watermark",
        "entropy_window_verifier",
        "expected_tokens",
        "huggingface_heuristic",
        "lk_divergence",
        "memory_accesses_factor",
        "operations_factor",
        "oracle_speedup",
        "read_generation_config",
        "render_trace",
        "single_draft_improvement",
        "skip_gram_heads",
        "spectr",
        "spectr_verifier",
        "speculative",
        "speculative_beam_search",
        "stream",
        "trace_legend",
        "tree_rules",
        "verify_chain",
        "verify_hierarchical",
        "verify_target_only",
        "verify_traversal",
        "verify_walk_and_keep",
        "walltime_improvement",
        "watermark_keys",
        "watermark_laws",
        "watermarked",
    ],
    "otm.drafts": [
        "IID",
        "DraftDistribution",
        "Greedy",
        "HubPairs",
        "Independent",
        "Joint",
        "Top",
        "WithoutReplacement",
    ],
    "otm.errors": [
        "CertificateError",
        "EndpointError",
        "InvalidDistributionError",
        "InvalidDraftCountError",
        "InvalidDraftsError",
        "InvalidInputError",
        "InvalidParameterError",
        "InvalidUniformsError",
        "MissingDependencyError",
        "NoSuchRowError",
        "ProblemTooLargeError",
        "SolverError",
        "UnknownMethodError",
        "UnsupportedVersionError",
    ],
    "otm.gain": [
        "Candidate",
        "Estimate",
        "Latency",
        "Lenience",
        "LossySetting",
        "ModelPair",
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
        "accepted_along_text",
        "best_tree",
        "block_efficiency",
        "clustered_mean",
        "common_draft",
        "contexts_from",
        "efficiency_bound",
        "factorised_draft",
        "first_step_acceptance",
        "from_files",
        "from_models",
        "from_top_logprobs",
        "measure_latency",
        "rank_hits",
        "read_latency",
        "recommend",
        "record",
        "report",
    ],
    "otm.integrations.vllm": ["register"],
    "otm.integrations.huggingface": [
        "AssistedDecoding",
        "patch_generate",
    ],
    "otm.kernels": [
        "SelfCheck",
        "SparseDrafts",
        "Verified",
        "VerifiedTree",
        "Workspace",
        "mass",
        "self_checks",
        "sigmoid_distance",
        "verify_chains",
        "verify_logits",
        "verify_probs",
        "verify_sigmoid",
        "verify_tree_logits",
        "verify_tree_probs",
    ],
    "otm.models": [
        "GPT",
        "GPTConfig",
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
        "encode",
        "load",
        "save_huggingface",
    ],
    "otm.models.gpt.train": [
        "PRESETS",
        "Preset",
        "default_text",
        "split",
        "train",
    ],
    "otm.optimum": [
        "Bound",
        "BoundedOptimum",
        "Cut",
        "Optimum",
        "acceptance_at_distance",
        "alpha_interval",
        "alpha_interval_from_logprobs",
        "bisection_steps",
        "bounds_by_random_order",
        "closest_ratio",
        "excess",
        "guarantee",
        "lemma_3_by_definition",
        "lenient_cap",
        "lenient_value",
        "minimum_cut",
        "optimal_cap",
        "optimal_division_factor",
        "optimal_value",
        "optimum_of",
        "spectr_bounds",
    ],
    "otm.optimum.solvers": [
        "LinearProgram",
        "LinearProgramSize",
        "LinearProgramSolution",
        "alpha_by_max_flow",
        "packing_form",
        "size_of",
        "solve_cvxpy",
        "solve_highs",
        "solve_sinkhorn",
    ],
    "otm.rules": [
        "RULES",
        "Rule",
        "named",
        "names",
    ],
    "otm.testing": [
        "BUDGET",
        "INSTANCES",
        "Budget",
        "Control",
        "Path",
        "SymbolicUniform",
        "Verdict",
        "assert_lossless",
        "continued_distribution",
        "exact_acceptance",
        "exact_distribution",
        "exact_distribution_of_select",
        "exact_output_distribution",
        "instance",
        "output_distribution_of",
        "paths",
        "sequence_distribution",
    ],
    "otm.testing.strategies": [
        "BLOCK_KINDS",
        "DISTRIBUTION_KINDS",
        "PAIR_KINDS",
        "Block",
        "blocks",
        "distributions",
        "drafts",
        "pairs",
        "problems",
        "uniforms",
    ],
}

ATTRIBUTES: dict[type, list[str]] = {
    Solution: [
        "alpha", "bounds", "certificate", "cut", "method", "plan", "problem", "sample", "select",
        "why",
    ],
    BlockSolution: [
        "accepted", "bound", "certificate", "method", "nodes", "plan", "why",
    ],
    BlockCertificate: ["check", "document", "gap", "load", "lower", "save", "upper"],
    Certificate: [
        "build", "cap", "check", "cut", "gap", "load", "lower", "method", "problem", "save",
        "to_document", "upper",
    ],
    Problem: [
        "bins", "by_ratio", "draft", "drafts", "drafts_as", "exact", "ids", "iid", "k", "n",
        "shape", "target", "to_exact", "to_floats", "tokens", "with_k",
    ],
    DraftDistribution: [
        "check", "distribution_of_last", "distribution_of_one", "draftable", "draw", "exact", "ids",
        "missed", "n", "position_tuples", "positions", "sample", "to_exact", "to_floats", "tokens",
        "tuple_count", "tuples", "uniforms_per_draw",
    ],
    TransportPlan: [
        "acceptance", "acceptance_bounds", "conditional", "drafts", "lossless",
        "output_distribution", "problem", "sample", "select", "transport",
        "uniforms_per_selection",
    ],
    ResidualPlan: [
        "acceptance", "acceptance_bounds", "acceptance_by_test", "accepted_mass", "conditional",
        "drafts", "lossless", "output_distribution", "plot", "problem", "residual", "sample",
        "select", "transport", "uniforms_per_selection",
    ],
    Selection: ["index", "token"],
    Interval: ["exact", "gap", "lower", "upper"],
    SparseProbs: [
        "dense", "draw", "from_dense", "from_support", "of", "probabilities", "tokens",
    ],
}  # fmt: skip

SIGNATURES = {
    "solve": "(p, q, k, *, method, memory_limit)",
    "alpha": "(p, q, k)",
    "compare": "(p, q, k, *, rules, prompts, level, progress)",
    "solve_block": "(draft, target, k, length, *, context, top, tolerance, rounds, node_limit)",
    "Problem": "(draft, target, k)",
}


@pytest.mark.parametrize("module", NAMES)
def test_the_public_names_of_a_module(module: str) -> None:
    found = importlib.import_module(module)
    assert found.__all__ == NAMES[module]
    order = [(not name.isupper(), not name[0].isupper(), name) for name in found.__all__]
    assert order == sorted(order)
    for name in found.__all__:
        assert hasattr(found, name)


def test_nothing_else_is_public() -> None:
    """Bug: a module that calls names public which nobody pinned, or a name with two paths."""
    package = Path(otm.__file__).parent
    public = set()
    for file in package.rglob("*.py"):
        assigned = [
            target
            for node in ast.parse(file.read_text(encoding="utf-8")).body
            if isinstance(node, ast.Assign)
            for target in node.targets
        ]
        if any(getattr(target, "id", "") == "__all__" for target in assigned):
            parts = ["otm", *file.relative_to(package).with_suffix("").parts]
            public.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    assert public == set(NAMES)
    paths = Counter(name for names in NAMES.values() for name in names)
    # the stand-alone checker reads a file's text, and models load weights
    assert {name for name, count in paths.items() if count > 1} == {"load"}


@pytest.mark.parametrize("cls", ATTRIBUTES, ids=lambda cls: cls.__name__)
def test_the_public_attributes_of_a_class(cls: type) -> None:
    fields = {field.name for field in getattr(cls, "__dataclass_fields__", {}).values()}
    names = {name for name in (*dir(cls), *fields) if not name.startswith("_")}
    assert sorted(names) == ATTRIBUTES[cls]


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_names_of_arguments(name: str) -> None:
    parameters = inspect.signature(getattr(otm, name)).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    bare = [parameter.replace(default=inspect.Parameter.empty) for parameter in bare]
    assert str(inspect.Signature(bare)) == SIGNATURES[name]


def test_every_selection_rule_has_the_protocol_and_no_more_than_its_parameters() -> None:
    """Catches a method on one rule that callers of the protocol would not find on the others."""
    k_seq = {"rho", "accept_probability"}
    winner = {"accept_probability", "slot_law", "slots", "target_mass", "winner_distribution"}
    own = {
        "ArgmaxLenientPlan": {"accept_probability", "lenience"},
        "Cactus": {"accept_probability", "delta", "raised_target"},
        "CascadePlan": {"relaxed_target", "slack", "version"},
        "EnsemblePlan": {"relaxed_target", "weight"},
        "GreedyRule": {"accept_probability"},
        "GridKSeq": {"accept_probability"},
        "ImportanceSelection": {"accept_probability", "selected_distribution", "weights"},
        "KSeq": k_seq,
        "LenientPlan": {*winner, "accepted_ratio", "lenience", "residual_of"},
        "GridOptimal": {"accept_probability", "steps", "winner_distribution"},
        "ListCoupling": {"agreeing", "couple", "lower_bound"},
        "MaximalCoupling": k_seq,
        "NonIterativeRejection": k_seq,
        "OptimalPlan": winner,
        "RecursiveRejection": {"rounds"},
        "RecursiveRejectionWithoutReplacement": {"acceptance_given"},
        "RelaxedPlan": {"relaxed_target"},
        "SyntheticAcceptance": {"accept_probability", "rate"},
        "TablePlan": {"accept", "from_linear_program", "from_max_flow", "from_rule"},
        "TypicalAcceptance": {"delta", "epsilon", "otherwise", "threshold"},
    }
    classes = {name: getattr(otm.coupling, name) for name in otm.coupling.__all__}
    rules = {
        name: cls
        for name, cls in classes.items()
        if inspect.isclass(cls) and issubclass(cls, TransportPlan)
    }
    assert len(rules) >= 17
    for name, cls in rules.items():
        protocol = set(ATTRIBUTES[ResidualPlan if issubclass(cls, ResidualPlan) else TransportPlan])
        public = {x for x in dir(cls) if x[0] != "_"} | {f.name for f in dataclasses.fields(cls)}
        assert public >= protocol
        assert public - protocol == own.get(name, set())


def test_the_rules_by_name_are_lossless() -> None:
    """Catches a lossy rule in the table of lossless ones."""
    problem = Problem([0.75, 0.25], [0.25, 0.75], 2)
    assert all(rule(problem).lossless for rule in PLANS.values())


def test_the_tree_of_errors() -> None:
    """Catches an error that callers who know only Python's own would no longer catch."""
    python = {
        "InvalidInputError": ValueError,
        "CertificateError": ValueError,
        "ProblemTooLargeError": MemoryError,
        "SolverError": RuntimeError,
        "MissingDependencyError": ImportError,
    }
    for name in otm.errors.__all__:
        error = getattr(otm.errors, name)
        assert issubclass(error, otm.OTMError)
        assert issubclass(error, python.get(name, Exception))
        if name.startswith("Invalid") or name == "UnknownMethodError":
            assert issubclass(error, otm.errors.InvalidInputError)
