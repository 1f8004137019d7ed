"""Test vectors: problems with exact answers, for the test suite of an engine in any language.

`vectors-1.json` holds the problems, and `check.py` compares an engine's answers with the file; it
needs only the standard library.  README.md describes the format.  `generate.py` writes the file:
`problems.py` and `choices.py` choose the problems, and `expected.py` computes the answers in
fractions.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["path"]


def path() -> Path:
    """Return the path of the file with the test vectors.

    The checker is beside the file: ``python check.py vectors-1.json answers.jsonl``.

    Returns
    -------
    Path
        The path of `vectors-1.json` in the installed package.

    References
    ----------
    The format is described in README.md, in the same folder.

    Examples
    --------
    >>> import json
    >>> document = json.loads(path().read_text(encoding="utf-8"))
    >>> document["format"], document["version"]
    ('otm-test-vectors', 1)
    >>> document["scales"]
    {'probabilities': 1024, 'uniforms': 4096, 'factor': 16}
    """
    return Path(__file__).with_name("vectors-1.json")
