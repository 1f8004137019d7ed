"""The public names, pinned: a name that goes, or comes by accident, fails here."""

from __future__ import annotations

import dataclasses
import importlib
import inspect

import pytest

import otm
import otm.coupling
import otm.errors
import otm.membership.bounds
import otm.membership.cut
from otm import Certificate, Interval, MembershipProblem, Solution, SparseLaw
from otm.batch import SolutionRows
from otm.coupling import RULES, ResidualPlan, Selection, TransportPlan
from otm.on_tokens import DraftsOnTokens, OnTokens, SparseSolution

NAMES = {
    "otm": [
        "Certificate",
        "Interval",
        "MembershipProblem",
        "OTMError",
        "Solution",
        "SparseLaw",
        "alpha",
        "compare",
        "solve",
    ],
    "otm.batch": ["SolutionRows", "solve_rows"],
    "otm.comparison": ["ComparedRule", "Comparison", "compare"],
    "otm.coupling": [
        "RULES",
        "ArgmaxLenientPlan",
        "GreedyRule",
        "ImportanceSelection",
        "KSeq",
        "LenientPlan",
        "ListCoupling",
        "MaximalCoupling",
        "NaiveTargetSampling",
        "NonIterativeRejection",
        "OptimalPlan",
        "RecursiveRejection",
        "RecursiveRejectionWithoutReplacement",
        "ResidualPlan",
        "Selection",
        "SpecHub",
        "TablePlan",
        "TransportPlan",
        "TypicalAcceptance",
        "distance_to_target",
    ],
    "otm.decoding": [
        "AcceleratedDrafter",
        "Beams",
        "DraftNode",
        "Drafter",
        "Generation",
        "Hypothesis",
        "ModelDrafter",
        "NonAutoregressiveDrafter",
        "OnlineGamma",
        "Options",
        "PromptLookup",
        "Seconds",
        "Standardization",
        "Step",
        "acceptance_from_divergence",
        "autoregressive",
        "beam_search",
        "best_for",
        "best_gamma",
        "corollary_3_9",
        "divergence_lk",
        "expected_tokens",
        "hugging_face_heuristic",
        "memory_accesses_factor",
        "operations_factor",
        "oracle_speedup",
        "spectr",
        "spectr_verifier",
        "speculative",
        "speculative_beam_search",
        "stream",
        "tree_rules",
        "verify_chain",
        "verify_traversal",
        "walltime_improvement",
    ],
    "otm.decoding.models": [
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
    ],
    "otm.decoding.planning": [
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
    ],
    "otm.draft_laws": [
        "IID",
        "DraftLaw",
        "Greedy",
        "HubPairs",
        "Independent",
        "Joint",
        "WithoutReplacement",
    ],
    "otm.errors": [
        "CertificateError",
        "InvalidDraftCountError",
        "InvalidDraftsError",
        "InvalidInputError",
        "InvalidLawError",
        "InvalidParameterError",
        "InvalidUniformsError",
        "MissingDependencyError",
        "OTMError",
        "ProblemTooLargeError",
        "SolverError",
        "UnknownMethodError",
    ],
    "otm.kernels": ["Workspace", "verify", "verify_drafts"],
    "otm.membership.bounds": ["Bound", "bounds", "guarantee", "lemma_3_by_definition"],
    "otm.membership.cut": ["Cut", "cap_of_value", "minimum_cut", "optimal_cap", "optimal_value"],
    "otm.membership.division_factor": ["bisection_steps", "excess", "optimal_division_factor"],
    "otm.membership.other_drafts": ["Optimum", "optimal_value_of", "optimum_of"],
    "otm.membership.top_logprobs": ["alpha_interval", "alpha_interval_from_logprobs"],
    "otm.on_tokens": ["DraftsOnTokens", "OnTokens", "SparseSolution", "on_tokens"],
    "otm.audit": [
        "LOSSLESS",
        "METHODS",
        "NOT_LOSSLESS",
        "UNDECIDED",
        "Counterexample",
        "Instance",
        "Report",
        "Subject",
        "chain",
        "loop",
        "lossless",
        "token_rule",
    ],
    "otm.audit.known_bugs": ["KNOWN_BUGS", "SUSPECTED", "KnownBug"],
    "otm.files": ["Rows", "file_size", "named", "open_arrays", "parse_json", "read_json"],
    "otm.reporting": [
        "Knob",
        "Latency",
        "Lenience",
        "ModelPair",
        "ScoreFiles",
        "Settings",
        "Source",
        "Summary",
        "TopLists",
        "Typical",
        "from_files",
        "from_lines",
        "from_models",
        "read_latency",
        "report",
    ],
    "otm.audit.adapters.huggingface": ["generate", "speculative_sampling"],
    "otm.audit.adapters.flashinfer": ["chain_speculative_sampling"],
    "otm.audit.adapters.vllm": ["rejection_sample"],
    "otm.audit.adapters.ours": ["chain_kernel", "decoding", "drafts_kernel", "trees"],
}

ATTRIBUTES: dict[type, list[str]] = {
    Solution: [
        "alpha", "bounds", "certificate", "cut", "method", "plan", "problem", "solver_plan", "why",
    ],
    Certificate: [
        "build", "cap", "check", "cut", "gap", "load", "lower", "method", "problem", "save",
        "to_document", "upper",
    ],
    MembershipProblem: ["by_ratio", "draft", "drafts", "exact", "k", "n", "target", "to_exact"],
    TransportPlan: [
        "acceptance", "acceptance_bounds", "conditional", "drafts", "lossless", "output_law",
        "problem", "sample", "select", "uniforms_per_selection",
    ],
    ResidualPlan: [
        "acceptance", "acceptance_bounds", "acceptance_by_test", "accepted_mass", "conditional",
        "drafts", "lossless", "output_law", "problem", "residual", "sample", "select",
        "uniforms_per_selection",
    ],
    Selection: ["index", "token"],
    Interval: ["exact", "gap", "lower", "upper"],
    SparseLaw: [
        "dense", "draw", "from_dense", "from_support", "of", "probabilities", "tokens",
    ],
    SolutionRows: ["alpha", "draft", "k", "sample", "select", "shape", "target"],
    DraftsOnTokens: [
        "check", "draw", "k", "law", "positions", "sample", "tokens", "uniforms_per_draw",
    ],
    OnTokens: [
        "acceptance", "acceptance_bounds", "conditional", "drafts", "lossless", "output_law",
        "plan", "sample", "select", "tokens", "uniforms_per_selection",
    ],
    SparseSolution: [
        "alpha", "bounds", "certificate", "cut", "method", "plan", "problem", "solution", "tokens",
        "why",
    ],
}  # fmt: skip

SIGNATURES = {
    "solve": "(p, q, k, *, method, memory_limit)",
    "alpha": "(p, q, k)",
    "compare": "(p, q, k, *, rules)",
    "MembershipProblem": "(draft, target, k)",
}


@pytest.mark.parametrize("module", NAMES)
def test_the_public_names_of_a_module(module: str) -> None:
    found = importlib.import_module(module)
    assert found.__all__ == NAMES[module]
    order = [(not name.isupper(), not name[0].isupper(), name) for name in found.__all__]
    assert order == sorted(order)
    for name in found.__all__:
        assert hasattr(found, name)


@pytest.mark.parametrize("cls", ATTRIBUTES, ids=lambda cls: cls.__name__)
def test_the_public_attributes_of_a_class(cls: type) -> None:
    fields = {field.name for field in dataclasses.fields(cls)}
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
    winner = {"accept_probability", "slots", "wanted_mass", "win_ratio", "winning_law"}
    own = {
        "ArgmaxLenientPlan": {"accept_probability", "lenience"},
        "GreedyRule": {"accept_probability"},
        "ImportanceSelection": {"accept_probability", "chosen_law", "weights"},
        "KSeq": k_seq,
        "LenientPlan": {*winner, "accepted_ratio", "lenience", "residual_of"},
        "ListCoupling": {"couple", "lower_bound"},
        "MaximalCoupling": k_seq,
        "NonIterativeRejection": k_seq,
        "OptimalPlan": winner,
        "RecursiveRejection": {"rounds"},
        "RecursiveRejectionWithoutReplacement": {"acceptance_given"},
        "TablePlan": {"accept", "from_linear_program", "from_rule"},
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
    problem = MembershipProblem([0.75, 0.25], [0.25, 0.75], 2)
    assert all(rule(problem).lossless for rule in RULES.values())


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
