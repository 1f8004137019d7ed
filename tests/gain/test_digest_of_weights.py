"""The digest of weights depends on all of their numbers."""

from __future__ import annotations

import pytest

from otm.gain.reports import model_pair
from otm.gain.reports.model_pair import digest_of_weights

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("place", [0, 57, 99])
def test_every_number_counts(kind: str, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a digest of only the first numbers lets different checkpoints share results."""
    monkeypatch.setattr(model_pair, "DIGEST_NUMBERS", 7)  # several parts, the last one short

    class Model:
        weight = torch.zeros(10, 10, dtype=getattr(torch, kind)).t()

        def state_dict(self) -> dict[str, object]:
            return {"weight": self.weight, "scalar": torch.tensor(1.0)}

    model = Model()
    before = digest_of_weights(model)
    assert digest_of_weights(Model()) == before
    model.weight[place // 10, place % 10] = 1
    assert digest_of_weights(model) != before
    model.weight[place // 10, place % 10] = 0
    assert digest_of_weights(model) == before
