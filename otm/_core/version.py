"""The version of the installed package, which a plain checkout does not have."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("otm")
except PackageNotFoundError:
    raise AttributeError("otm has a version once it is installed: pip install .") from None
