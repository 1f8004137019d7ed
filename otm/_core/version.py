"""The version of the installed package; a checkout that is not installed has none."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("otm")
except PackageNotFoundError:
    raise AttributeError("otm has no version, because it is not installed: pip install .") from None
