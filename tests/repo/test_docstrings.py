"""Public docstrings, held to the code: parameters, errors and examples."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import typing
from collections.abc import Iterator, Mapping
from types import MemberDescriptorType
from typing import Any, NamedTuple

import pytest

import otm
import otm.errors
from tests.repo.test_public_api import NAMES


class Documented(NamedTuple):
    """A public object, the class that it is or belongs to, and the docstrings that it overrides."""

    name: str
    value: Any
    owner: type | None = None
    texts: tuple[str, ...] = ()


def public_objects() -> Iterator[Documented]:
    """Every public module, function, class, method and property."""
    for module, names in NAMES.items():
        yield Documented(module, importlib.import_module(module))
        for name in names:
            value = getattr(importlib.import_module(module), name)
            owner = value if inspect.isclass(value) else None
            yield Documented(f"{module}.{name}", value, owner, (inspect.getdoc(value) or "",))
            for attribute, member in vars(owner).items() if owner else ():
                # a class describes its slots and the defaults of its fields
                plain = isinstance(member, str | int | float | tuple | MemberDescriptorType | None)
                if attribute[0] != "_" and not plain:
                    bases = [base for base in value.__mro__ if attribute in vars(base)]
                    texts = [inspect.getdoc(getattr(base, attribute)) or "" for base in bases]
                    found = member if isinstance(member, property) else getattr(owner, attribute)
                    yield Documented(f"{module}.{name}.{attribute}", found, owner, (*texts,))


OBJECTS = list(public_objects())
each_callable = pytest.mark.parametrize(
    "item",
    [x for x in OBJECTS if callable(x.value) and not typing.get_origin(x.value)],  # no alias
    ids=lambda item: item.name,
)


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
            return getattr(getattr(below, "value", None), "value", None)
    return None


@pytest.mark.parametrize("item", OBJECTS, ids=lambda item: item.name)
def test_everything_public_has_a_docstring_of_its_own(item: Documented) -> None:
    value = item.value
    by_itself = not (typing.get_origin(value) or isinstance(value, Mapping))
    text = getattr(value, "__doc__", None) if by_itself else text_of_alias(item.name)
    assert text
    if inspect.isclass(value):
        assert text != value.__base__.__doc__
        assert not text.startswith(f"{value.__name__}(")  # what dataclass writes by itself
    if value in (otm.solve, otm.alpha, otm.Problem):
        for section in ("Parameters", "Raises", "Examples"):
            assert f"{section}\n{'-' * len(section)}" in item.texts[0]


def described(item: Documented, *headings: str) -> set[str]:
    """Names that sections of a numpydoc docstring begin their entries with."""
    found = set()
    for text, heading in itertools.product(item.texts, headings):
        body = re.search(rf"^{heading}\n-+\n(.*?)(?=^\w+\n---|\Z)", text, re.M | re.S)
        heads = re.findall(r"^(?! )(.+?)(?: : .*)?$", body[1], re.M) if body else []
        found |= {name.strip("* ") for head in heads for name in head.split(",")}
    return found


def is_protocol(value: Any) -> bool:
    """Whether a class only says what others have."""
    return getattr(value, "_is_protocol", False)


@each_callable
def test_every_parameter_is_described(item: Documented) -> None:
    """Catches a parameter that was added or renamed without a word; results list their fields."""
    try:
        parameters = set(inspect.signature(item.value).parameters) - {"self"}
    except ValueError:  # of exceptions and typed dicts
        return
    known = described(item, "Parameters", *["Attributes"] * (item.value is item.owner))
    assert is_protocol(item.value) or {x for x in parameters if x[0] != "_"} <= known


NEVER_RAISED = {
    "otm.audit.adapters.otm_verifiers.kernel InvalidInputError",  # kernels run in runs only
    # the step builds its own distributions
    "otm.audit.adapters.otm_verifiers.spectr_step InvalidDistributionError",
    "otm.audit.stateful.drafted InvalidParameterError",  # runs turn it into a failure
    "otm.audit.stateful.output InvalidParameterError",  # likewise
    "otm.Solution.sample InvalidUniformsError",  # a generator makes valid ones
    "otm.coupling.TransportPlan.sample InvalidUniformsError",  # likewise
    "otm.drafts.DraftDistribution.sample InvalidUniformsError",  # likewise
    "otm.decoding.verify_chain InvalidDistributionError",  # without SparseProbs it fails before
    "otm.decoding.verify_hierarchical InvalidDistributionError",  # likewise
    "otm.decoding.StringDrafter.draft InvalidInputError",  # a model draws tokens, at least 0
    "otm.drafts.Joint.from_array InvalidDraftsError",  # places in an array are tuples
    "otm.drafts.Joint.from_array InvalidParameterError",  # its length is an integer
    "otm.optimum.spectr_bounds InvalidParameterError",  # takes no parameter but a problem
    "otm.gain.report OTMError",  # is looked for, not raised
}
"""Errors that functions name or call for, and do not raise."""


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
    makers = [getattr(item.value, name, None) for name in ("__init__", "__post_init__")]
    functions = makers if item.value is item.owner else [item.value]
    raised = set[str]().union(*(raised_by(x, item.owner) for x in functions))
    known = [vars(otm.errors)[x] for x in described(item, "Raises") & {*NAMES["otm.errors"]}]
    for name in raised:
        is_known = issubclass(vars(otm.errors)[name], tuple(known))
        assert is_known != (f"{item.name} {name}" in NEVER_RAISED), name


WITHOUT_EXAMPLE = {
    "otm.audit.adapters.flashinfer.chain_speculative_sampling",  # needs FlashInfer and a GPU
    "otm.audit.adapters.vllm.rejection_sample",  # needs vLLM, or its build for CPUs
    *(f"otm.audit.adapters.huggingface.{name}" for name in ("generate", "speculative_sampling")),
    *(f"otm.integrations.huggingface.{x}" for x in ("AssistedDecoding", "patch_generate")),
    *(f"otm.gain.{name}" for name in ("ModelPair", "from_models")),
    *(
        f"otm.models.{x}"
        for x in (
            "save_huggingface",
            "HuggingFaceModel",
            "HiddenStateModel",
            "check_same_vocabulary",
        )
    ),
    "otm.models.download",  # needs a network
}
"""What needs a package that need not be installed, Hugging Face transformers if nothing is said."""


@each_callable
def test_every_function_and_class_shows_an_example(item: Documented) -> None:
    """But for errors and what is there to be subclassed; methods are shown by their class."""
    is_error = inspect.isclass(item.value) and issubclass(item.value, Exception)
    is_member = item.owner is not None and item.value is not item.owner
    if not (is_error or is_member or is_protocol(item.value) or inspect.isabstract(item.value)):
        assert (">>> " in item.texts[0]) != (item.name in WITHOUT_EXAMPLE)
