"""Fixtures of the tests of the audit."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the comparison with known bugs, which is tested elsewhere and takes its time."""
    from otm.audit.diagnose import diagnosis

    monkeypatch.setattr(diagnosis, "KNOWN_BUGS", ())
