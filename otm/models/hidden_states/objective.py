"""Loss and acceptance of a draft layer along texts of its target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm.models.hidden_states.layer import Layer, unrolled
from otm.models.hidden_states.text import Text

if TYPE_CHECKING:
    from torch import Tensor

LATER = 0.7
"""Weight of each pass, relative to the pass before it."""


class Slots(NamedTuple):
    """The slots of B texts, whose outputs are compared with the target, and their inputs."""

    # [B, L, S · D] states before, and [B, L, D] embeddings of, the tokens from the second on.
    states: Any
    embedded: Any
    # [B, L]: whether the target's distribution after the token is one of an answer.
    used: Any
    # [N, D] and [N]: the target's last states after the used tokens, and log Σ exp of its logits.
    after: Any
    log_totals: Any
    # [N]: the tokens that follow the used tokens.
    following: Any


class Objective:
    """Compares a layer with its target, whose embedding is `embedding` [V, D].

    `head` [V, D] is the weight of the target's output layer, and `tokens` [v] are the tokens that
    the layer scores.
    """

    def __init__(self, embedding: Tensor, head: Tensor, tokens: Tensor) -> None:
        self._embedding, self._whole_head, self._tokens = embedding, head, tokens
        self._head = head[tokens].contiguous()

    def slots(self, text: Text, rows: Tensor) -> Slots:
        """Return the slots of some rows of a text."""
        import torch

        lengths = text.lengths[rows]
        end = int(lengths.max())
        tokens, states = text.tokens[rows, :end], text.states[rows, :end]
        place = torch.arange(1, end)
        used = (place >= text.prompts[rows, None] - 1) & (place < lengths[:, None] - 1)
        width = self._head.shape[1]
        following = torch.nn.functional.pad(tokens[:, 2:], (0, 1))
        return Slots(
            states[:, :-1],
            self._embedding[tokens[:, 1:]],
            used,
            states[:, 1:, -width:][used],
            text.log_totals[rows, 1:end][used],
            following[used],
        )

    def target_probs(self, slots: Slots) -> Tensor:
        """Return the target's probabilities [N, v] of the tokens of the head."""
        import torch

        logits = torch.nn.functional.linear(slots.after, self._head).float()
        return (logits - slots.log_totals[:, None]).exp()

    def loss(self, layer: Layer, slots: Slots, passes: int, entropy: float) -> Tensor:
        """Return 1 − α plus a multiple of the cross entropy, summed over the passes by weight."""
        import torch

        target = self.target_probs(slots)
        outputs = unrolled(layer, slots.states, slots.embedded, passes)
        total: Any = 0.0
        for i, output in enumerate(outputs):
            logs = torch.log_softmax(layer.logits(output[slots.used], self._head).float(), -1)
            rejected = 1 - torch.minimum(logs.exp(), target).sum(-1)
            crossed = -(target * logs).sum(-1)
            total = total + LATER**i * (rejected + entropy * crossed).mean()
        return total

    def acceptance(
        self, layer: Layer, slots: Slots, gamma: int
    ) -> tuple[npt.NDArray[np.float64], float]:
        """Return α of each of γ drafts, given known states before, and the tokens of a step.

        The tokens of a step of chain verification are estimated along the text, where the target
        sampled the tokens: the draft at distance i is reached with probability Π min(1, p / q).
        """
        import torch

        target = self.target_probs(slots)
        whole = torch.nn.functional.linear(slots.after, self._whole_head).float()
        own = whole.gather(1, slots.following[:, None])[:, 0] - slots.log_totals
        place = torch.full((len(self._whole_head),), -1)
        place[self._tokens] = torch.arange(len(self._tokens))
        place = place[slots.following]
        alphas = torch.zeros(gamma, *slots.used.shape)
        passed = torch.zeros(gamma, *slots.used.shape)
        for i, output in enumerate(unrolled(layer, slots.states, slots.embedded, gamma)):
            probs = layer.logits(output[slots.used], self._head).float().softmax(-1)
            alphas[i][slots.used] = torch.minimum(probs, target).sum(-1)
            of_text = probs.gather(1, place.clamp(min=0)[:, None])[:, 0] * (place >= 0)
            passed[i][slots.used] = (of_text / own.exp()).clamp(max=1)
        width = slots.used.shape[1] - gamma + 1
        inside = slots.used[:, :width] & slots.used[:, gamma - 1 :]
        reached = torch.ones(len(inside), width)
        tokens = torch.ones(len(inside), width)
        for i in range(gamma):
            tokens += reached * alphas[i, :, i : i + width]
            reached *= passed[i, :, i : i + width]
        return alphas[:, slots.used].double().mean(1).numpy(), float(tokens[inside].mean())
