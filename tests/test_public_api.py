"""The public names, pinned: a name that goes, or comes by accident, fails here."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

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


def public_objects() -> Iterator[tuple[str, Any]]:
    """Every public module, function, class, method and property of the core."""
    for module_name, names in NAMES.items():
        module: ModuleType = importlib.import_module(module_name)
        yield module_name, module
        for name in names:
            value = getattr(module, name)
            yield f"{module_name}.{name}", value
            if inspect.isclass(value):
                for attribute, member in vars(value).items():
                    described = callable(member) or hasattr(member, "__doc__")
                    if attribute[0] != "_" and described and not is_plain(member):
                        yield f"{module_name}.{name}.{attribute}", member


def is_plain(value: Any) -> bool:
    """Whether a class attribute is the default of a field, whose docstring says nothing of it."""
    return value is None or isinstance(value, str | int | float | tuple)


@pytest.mark.parametrize(("name", "value"), list(public_objects()))
def test_everything_public_has_a_docstring_of_its_own(name: str, value: Any) -> None:
    text = getattr(value, "__doc__", None)
    assert text, f"{name} has no docstring"
    if inspect.isclass(value):
        assert text != value.__base__.__doc__
        assert not text.startswith(f"{value.__name__}(")  # what dataclass writes by itself


@pytest.mark.parametrize("name", ["otm.solve", "otm.alpha", "otm.MembershipProblem"])
def test_the_front_door_documents_its_errors_and_shows_an_example(name: str) -> None:
    text = inspect.getdoc(getattr(otm, name.removeprefix("otm.")))
    assert text is not None
    for section in ("Parameters", "Raises", "Examples"):
        assert f"{section}\n{'-' * len(section)}" in text


class Documented(NamedTuple):
    """A public class, function or method, with its docstring and those that it overrides."""

    name: str
    value: Any
    owner: type | None
    texts: list[str]


def public_callables() -> Iterator[Documented]:
    """Every public class, function and method."""
    for module, names in NAMES.items():
        for name in names:
            value = getattr(importlib.import_module(module), name)
            if not callable(value):
                continue
            owner = value if inspect.isclass(value) else None
            yield Documented(f"{module}.{name}", value, owner, [inspect.getdoc(value) or ""])
            for attribute in vars(owner) if owner else ():
                member = getattr(owner, attribute)
                if attribute[0] != "_" and (inspect.isfunction(member) or inspect.ismethod(member)):
                    bases = [base for base in value.__mro__ if attribute in vars(base)]
                    texts = [inspect.getdoc(getattr(base, attribute)) or "" for base in bases]
                    yield Documented(f"{module}.{name}.{attribute}", member, owner, texts)


each_callable = pytest.mark.parametrize(
    "item", list(public_callables()), ids=lambda item: item.name
)


def described(text: str, heading: str) -> set[str]:
    """Names that a section of a numpydoc docstring begins its entries with."""
    body = re.search(rf"^{heading}\n-+\n(.*?)(?=^\w+\n---|\Z)", text, re.M | re.S)
    heads = re.findall(r"^(?! )(.+?)(?: : .*)?$", body[1], re.M) if body else []
    return {name.strip("* ") for head in heads for name in head.split(",")}


@each_callable
def test_every_parameter_is_described(item: Documented) -> None:
    """Catches a parameter that was added or renamed without a word; results list their fields."""
    try:
        parameters = set(inspect.signature(item.value).parameters) - {"self"}
    except ValueError:  # of exceptions and typed dicts
        return
    headings = ("Parameters", "Attributes") if item.value is item.owner else ("Parameters",)
    known = set[str]().union(*(described(text, x) for text in item.texts for x in headings))
    assert is_protocol(item.value) or {x for x in parameters if x[0] != "_"} <= known


def is_protocol(value: Any) -> bool:
    """Whether a class only says what others have."""
    return getattr(value, "_is_protocol", False)


NEVER_RAISED = {
    ("otm.audit.adapters.ours.chain_kernel", "InvalidInputError"): "kernels run in runs only",
    ("otm.audit.adapters.ours.drafts_kernel", "InvalidInputError"): "kernels run in runs only",
    ("otm.batch.SolutionRows.sample", "InvalidUniformsError"): "a generator makes valid ones",
    ("otm.coupling.TransportPlan.sample", "InvalidUniformsError"): "a generator makes valid ones",
    ("otm.decoding.verify_chain", "InvalidLawError"): "without SparseLaws it fails before",
    ("otm.draft_laws.DraftLaw.sample", "InvalidUniformsError"): "a generator makes valid ones",
    ("otm.draft_laws.Joint.from_array", "InvalidDraftsError"): "places in an array are tuples",
    ("otm.draft_laws.Joint.from_array", "InvalidParameterError"): "its length is an integer",
    ("otm.membership.bounds.bounds", "InvalidParameterError"): "takes no parameter but a problem",
    ("otm.reporting.report", "OTMError"): "is looked for, not raised",
}


def raised_by(function: Any, owner: Any, depth: int = 2) -> set[str]:
    """Errors that a function names, or what it calls: functions by name, methods of its class."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    inner = [name for name in names if name.startswith("otm.")]  # imported by the function itself
    places = [owner, *map(importlib.import_module, inner)]
    found: set[str] = set()
    for name in names:
        values = [inspect.getattr_static(place, name, None) for place in places]
        for value in (function.__globals__.get(name), *values):
            if inspect.isclass(value) and issubclass(value, otm.OTMError):
                found.add(name)
            elif depth and inspect.isfunction(value) and value.__module__.startswith("otm."):
                found |= raised_by(value, owner, depth - 1)
    return found


@each_callable
def test_every_error_is_described(item: Documented) -> None:
    """Catches an error that callers would first hear of in use; a base of it says enough."""
    is_class = item.value is item.owner
    makers = [getattr(item.value, name, None) for name in ("__init__", "__post_init__")]
    raised = [raised_by(x, item.owner) for x in (makers if is_class else [item.value])]
    names = set[str]().union(*(described(text, "Raises") for text in item.texts))
    known = tuple(getattr(otm.errors, name) for name in names if name in NAMES["otm.errors"])
    for name in set[str]().union(*raised):
        is_known = issubclass(getattr(otm.errors, name), known)
        assert is_known != ((item.name, name) in NEVER_RAISED), name


WITHOUT_EXAMPLE = {
    "otm.audit.adapters.flashinfer.chain_speculative_sampling": "needs FlashInfer and a GPU",
    "otm.audit.adapters.huggingface.generate": "needs transformers",
    "otm.audit.adapters.huggingface.speculative_sampling": "needs transformers",
    "otm.audit.adapters.vllm.rejection_sample": "needs vLLM and a GPU",
    "otm.decoding.models.HuggingFaceModel": "needs transformers; its example is not run",
    "otm.decoding.models.check_same_vocabulary": "needs transformers",
    "otm.reporting.ModelPair": "needs transformers",
    "otm.reporting.from_models": "needs transformers",
}


@each_callable
def test_every_function_and_class_shows_an_example(item: Documented) -> None:
    """But for errors and what is there to be subclassed; methods are shown by their class."""
    is_error = inspect.isclass(item.value) and issubclass(item.value, Exception)
    is_member = item.owner is not None and item.value is not item.owner
    if not (is_error or is_member or is_protocol(item.value) or inspect.isabstract(item.value)):
        assert (">>> " in item.texts[0]) != (item.name in WITHOUT_EXAMPLE)
