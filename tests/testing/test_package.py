"""The instruments load without Hypothesis and SciPy, and the named instances are what they say."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from otm.errors import UnknownMethodError
from otm.testing.instances import INSTANCES, instance


def run(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_hypothesis_and_scipy_are_imported_on_use() -> None:
    code = "import sys, otm.testing; print({'hypothesis', 'scipy'} & set(sys.modules))"
    assert run(code).strip() == "set()"


def test_without_hypothesis_the_message_names_the_extra() -> None:
    code = """if True:
        import sys
        sys.modules["hypothesis"] = None
        from otm.errors import MissingDependencyError
        try:
            import otm.testing.strategies
        except MissingDependencyError as error:
            print(error)
    """
    assert "otm[testing]" in run(code)


@pytest.mark.parametrize("name", INSTANCES)
def test_instances_come_in_fractions_and_in_floats(name: str) -> None:
    exact, floats = instance(name), instance(name, exact=False)
    draft, target, k = INSTANCES[name]
    assert exact.exact
    assert not floats.exact
    assert exact.k == floats.k == k
    assert (exact.draft * sum(draft)).tolist() == draft
    assert (exact.target * sum(target)).tolist() == target
    assert abs(floats.draft - exact.draft.astype(np.float64)).max() <= 1e-16


def test_an_unknown_instance_lists_the_known_ones() -> None:
    with pytest.raises(UnknownMethodError, match="Bernoulli, three drafts"):
        instance("Bernouli")
