"""Description of the machine that ran a measurement."""

import importlib.metadata
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["machine"]


def machine(*packages: str) -> dict[str, Any]:
    """Return date, processor, system, and the versions of Python and of the named packages."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    model = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), None)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": model or platform.processor(),
        "cores": os.cpu_count(),
    }


def version(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
