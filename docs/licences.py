"""Write the licences of the pinned packages into docs/tables/dependencies.md.

python -m venv /tmp/all
/tmp/all/bin/python -m pip install --no-deps -r constraints.txt triton
/tmp/all/bin/python docs/licences.py
"""

import re
from collections.abc import Iterator
from importlib.metadata import PackageMetadata, metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tables" / "dependencies.md"
TABLE = re.compile(r"(<!-- licences -->\n).*?(<!-- end of licences -->)", re.DOTALL)
PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>\S+)")
NOT_PINNED = {"triton": "otm[test]"}  # GPU builds of torch pin their own


def licence_of(found: PackageMetadata) -> str:
    """Read the licence of a package: its SPDX expression, else its classifiers, else its words."""
    if expression := found.get("License-Expression"):
        return expression
    classifiers = [text.split(" :: ") for text in found.get_all("Classifier", [])]
    names = [parts[-1] for parts in classifiers if parts[0] == "License" and len(parts) > 2]
    if names:
        return ", ".join(dict.fromkeys(names))
    first_line = (found.get("License") or "").strip().partition("\n")[0]
    return first_line or "not stated"


def pins() -> Iterator[tuple[str, str, str]]:
    """Name, version and the section of constraints.txt, for every package."""
    section = ""
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            section = line.removeprefix("# ").partition(" (")[0]
        elif pin := PIN.match(line):
            yield pin["name"], pin["version"], section
    for name, section in NOT_PINNED.items():
        yield name, "", section


def table() -> str:
    """Lay out what the installed packages say."""
    lines = ["| package | version | licence | needed by |", "| --- | --- | --- | --- |"]
    for name, version, section in sorted(pins(), key=lambda pin: pin[0].lower()):
        found = metadata(name)
        if version and found["Version"].partition("+")[0] != version:
            raise SystemExit(f"{name} {found['Version']} is installed, {version} is pinned")
        lines.append(f"| {name} | {version} | {licence_of(found)} | {section} |")
    return "\n".join(lines)


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    new = TABLE.sub(lambda place: f"{place[1]}\n{table()}\n\n{place[2]}", page)
    PAGE.write_text(new, encoding="utf-8")
