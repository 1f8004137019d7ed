"""Public docstrings, held to the code: parameters, errors and examples."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import runpy
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

import pytest

import otm
import otm.errors

PINNED = Path(__file__).with_name("test_public_api.py")

NAMES: dict[str, list[str]] = runpy.run_path(str(PINNED))["NAMES"]
"""The public names, by module."""


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
    """Whether a class attribute is a slot or the default of a field: its class describes these."""
    return value is None or isinstance(value, str | int | float | tuple | MemberDescriptorType)


def text_of_alias(name: str) -> str | None:
    """Return the string below the assignment of a name, which is all that an alias can have."""
    module, _, own = name.rpartition(".")
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    # names that are loaded on use are imported in a block for type checkers
    blocks = [node.body if isinstance(node, ast.If) else [node] for node in tree.body]
    for node, below in itertools.pairwise(itertools.chain.from_iterable(blocks)):
        if isinstance(node, ast.ImportFrom) and own in {alias.name for alias in node.names}:
            return text_of_alias(f"{node.module}.{own}")
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if own in {getattr(target, "id", None) for target in targets}:
            constant = getattr(below, "value", None)
            return getattr(constant, "value", None)
    return None


@pytest.mark.parametrize(("name", "value"), list(public_objects()))
def test_everything_public_has_a_docstring_of_its_own(name: str, value: Any) -> None:
    by_itself = not (typing.get_origin(value) or isinstance(value, Mapping))
    text = getattr(value, "__doc__", None) if by_itself else text_of_alias(name)
    assert text, f"{name} has no docstring"
    if inspect.isclass(value):
        assert text != value.__base__.__doc__
        assert not text.startswith(f"{value.__name__}(")  # what dataclass writes by itself


@pytest.mark.parametrize("name", ["otm.solve", "otm.alpha", "otm.Problem"])
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
            if not callable(value) or typing.get_origin(value):  # a number, or an alias of a type
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
    ("otm.audit.adapters.otm_verifiers.kernel", "InvalidInputError"): "kernels run in runs only",
    (
        "otm.audit.adapters.otm_verifiers.spectr_step",
        "InvalidDistributionError",
    ): "it tries a rule on laws of its own",
    ("otm.audit.stateful.drafted", "InvalidParameterError"): "runs turn it into a failure",
    ("otm.audit.stateful.output", "InvalidParameterError"): "runs turn it into a failure",
    ("otm.Solution.sample", "InvalidUniformsError"): "a generator makes valid ones",
    ("otm.coupling.TransportPlan.sample", "InvalidUniformsError"): "a generator makes valid ones",
    (
        "otm.decoding.verify_chain",
        "InvalidDistributionError",
    ): "without SparseProbs it fails before",
    (
        "otm.decoding.verify_hierarchical",
        "InvalidDistributionError",
    ): "without SparseProbs it fails before",
    (
        "otm.decoding.StringDrafter.draft",
        "InvalidInputError",
    ): "a model draws tokens, which are at least 0",
    ("otm.drafts.DraftDistribution.sample", "InvalidUniformsError"): "a generator makes valid ones",
    ("otm.drafts.Joint.from_array", "InvalidDraftsError"): "places in an array are tuples",
    ("otm.drafts.Joint.from_array", "InvalidParameterError"): "its length is an integer",
    ("otm.optimum.spectr_bounds", "InvalidParameterError"): "takes no parameter but a problem",
    ("otm.gain.report", "OTMError"): "is looked for, not raised",
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
            is_error = inspect.isclass(value) and issubclass(value, otm.OTMError)
            if is_error and hasattr(otm.errors, name):  # others are caught inside
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
    "otm.models.save_huggingface": "needs transformers",
    "otm.audit.adapters.huggingface.generate": "needs transformers",
    "otm.audit.adapters.huggingface.speculative_sampling": "needs transformers",
    "otm.audit.adapters.vllm.rejection_sample": "needs vLLM, or its build for CPUs",
    "otm.integrations.huggingface.AssistedDecoding": "needs transformers",
    "otm.integrations.huggingface.patch_generate": "needs transformers",
    "otm.models.HuggingFaceModel": "needs transformers; its example is not run",
    "otm.models.check_same_vocabulary": "needs transformers",
    "otm.gain.ModelPair": "needs transformers",
    "otm.gain.from_models": "needs transformers",
}


@each_callable
def test_every_function_and_class_shows_an_example(item: Documented) -> None:
    """But for errors and what is there to be subclassed; methods are shown by their class."""
    is_error = inspect.isclass(item.value) and issubclass(item.value, Exception)
    is_member = item.owner is not None and item.value is not item.owner
    if not (is_error or is_member or is_protocol(item.value) or inspect.isabstract(item.value)):
        assert (">>> " in item.texts[0]) != (item.name in WITHOUT_EXAMPLE)
