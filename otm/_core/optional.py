"""Optional packages: what each is for, which extra brings it, and how it is imported.

`import otm` loads none of them: whoever needs one asks `require` for it, inside the function that
uses it.  Only a package that is absent counts as not installed: an error inside one that is there
(a library that it lacks, a module that it misses) is raised as it is.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from otm.errors import MissingDependencyError


class Package(NamedTuple):
    """What the error about a missing package says."""

    name: str
    purpose: str
    install: str
    """What pip installs."""


def _of(extra: str) -> str:
    return f'"otm[{extra}]"'


PACKAGES = {
    "clarabel": Package("clarabel", "solve linear programs with cvxpy", _of("cvxpy")),
    "cvxpy": Package("cvxpy", "solve linear programs with Clarabel", _of("cvxpy")),
    "flashinfer": Package("FlashInfer", "audit its sampler, on a GPU", "flashinfer-python"),
    "highspy": Package("highspy", "solve linear programs with HiGHS", "highspy"),
    "httpx2": Package("httpx2", "audit a server", _of("server")),
    "hypothesis": Package("Hypothesis", "search instances", _of("testing")),
    "jinja2": Package("jinja2", "write pages of figures and reports", _of("figures")),
    "joblib": Package("joblib", "compute reports", _of("report")),
    "matplotlib": Package("matplotlib", "draw figures", _of("figures")),
    "networkx": Package("networkx", "compute the maximum flow", _of("flow")),
    "ot": Package("POT", "iterate as Sinkhorn did", _of("sinkhorn")),
    "rich": Package("rich", "use the command line", _of("cli")),
    "safetensors": Package("safetensors", "keep weights in files", _of("torch")),
    "torch": Package("torch", "compute on tensors", _of("torch")),
    "transformers": Package("transformers", "use models of Hugging Face", _of("huggingface")),
    "triton": Package("Triton", "run the kernels", _of("torch")),  # with torch's builds for GPUs
    "typer": Package("typer", "use the command line", _of("cli")),
    "vllm": Package("vLLM", "audit its sampler, or verify in it", "vllm"),
}
"""Every package that may be absent, by the name that Python imports it by."""


def require(module: str, attribute: str | None = None, advice: str = "") -> Any:
    """Import a module of an optional package by its whole name, or take one of its attributes.

    The advice, what to do instead, ends the message.
    """
    try:
        imported = import_module(module)
    except ModuleNotFoundError as error:
        absent = error.name or ""
        if not f"{module}.".startswith(f"{absent}."):  # something that the package itself imports
            raise
        loaded = sys.modules.get(module.partition(".")[0]) is not None
        raise not_installed(module, advice, part=absent if loaded else "") from error
    if attribute is None:
        return imported
    value = getattr(imported, attribute, None)
    if value is None:
        raise not_installed(module, advice, part=f"{module}.{attribute}")
    return value


def optional(module: str) -> Any | None:
    """Import a module of a package that can be done without; None if it is not installed."""
    try:
        return require(module)
    except MissingDependencyError:
        return None


def not_installed(module: str, advice: str = "", *, part: str = "") -> MissingDependencyError:
    """Make the error about a package that is not installed, or has no such part."""
    root = module.partition(".")[0]
    name, purpose, install = PACKAGES[root]
    lacking = f"{name} with {part}" if part else name
    end = f" ({advice})" if advice else ""
    return MissingDependencyError(
        f"{lacking} is not installed; to {purpose}: pip install {install}{end}"
    )


def is_installed(package: str) -> bool:
    """Whether a package is there, without importing it."""
    return find_spec(package) is not None


def check_installed(*packages: str, advice: str = "") -> None:
    """Refuse to begin work that would lack a package in the end; nothing is imported."""
    for package in packages:
        if not is_installed(package):
            raise not_installed(package, advice)
