"""The version of the installed package; a checkout that is not installed has none."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("otm")
except PackageNotFoundError:
    raise AttributeError("otm has a version once it is installed: pip install .") from None
