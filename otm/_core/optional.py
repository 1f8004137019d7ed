"""Optional packages: their purpose, the extra that installs them, and how to import them.

`import otm` does not load optional packages.  A function imports an optional package by `require`.
If the package or one of its modules is missing, the error names the command that installs it.  If
an installed package fails to import, for example because one of its own libraries is missing, its
error is raised unchanged.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from otm.errors import MissingDependencyError


class Package(NamedTuple):
    """Texts for the error about a missing package."""

    name: str
    purpose: str
    install: str
    """Argument of `pip install`."""


def _of(extra: str) -> str:
    return f'"otm[{extra}]"'


PACKAGES = {
    "accelerate": Package("accelerate", "load downloaded models", _of("real")),
    "clarabel": Package("clarabel", "solve linear programs with cvxpy", _of("cvxpy")),
    "cvxpy": Package("cvxpy", "solve linear programs with Clarabel", _of("cvxpy")),
    "flashinfer": Package("FlashInfer", "audit its sampler, on a GPU", "flashinfer-python"),
    "gguf": Package("gguf", "load downloaded models", _of("real")),
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
    # torch's builds for GPUs install Triton.
    "triton": Package("Triton", "run the kernels", _of("torch")),
    "typer": Package("typer", "use the command line", _of("cli")),
    "vllm": Package("vLLM", "audit its sampler, or verify in it", "vllm"),
}
"""All optional packages, by import name."""


def require(module: str, attribute: str | None = None, advice: str = "") -> Any:
    """Import a module of an optional package, or return one of the module's attributes.

    If the package is missing, the error message ends with the advice.
    """
    try:
        imported = import_module(module)
    except ModuleNotFoundError as error:
        absent = error.name or ""
        # Another missing package is a dependency of the optional one.
        if not f"{module}.".startswith(f"{absent}."):
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
    """Import a module of an optional package; return None if the package is not installed."""
    try:
        return require(module)
    except MissingDependencyError:
        return None


def not_installed(module: str, advice: str = "", *, part: str = "") -> MissingDependencyError:
    """Build the error about a package that is not installed, or lacks a module or attribute."""
    root = module.partition(".")[0]
    name, purpose, install = PACKAGES[root]
    lacking = f"{name} with {part}" if part else name
    end = f" ({advice})" if advice else ""
    return MissingDependencyError(
        f"{lacking} is not installed; to {purpose}: pip install {install}{end}"
    )


def is_installed(package: str) -> bool:
    """Return whether a package is installed, without importing it."""
    return find_spec(package) is not None


def check_installed(*packages: str, advice: str = "") -> None:
    """Raise if a package is missing, before any work starts; import nothing."""
    for package in packages:
        if not is_installed(package):
            raise not_installed(package, advice)
