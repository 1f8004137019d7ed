"""A draft model that reads the target's hidden states and shares its embedding and output layer."""

from __future__ import annotations

from otm._core.files.paths import AnyPath
from otm._core.optional import require
from otm.errors import InvalidInputError, InvalidParameterError
from otm.models.base import LanguageModel, Session
from otm.models.hidden_states.files import SHIPPED, LayerFile, load_layer
from otm.models.hidden_states.layer import Layer
from otm.models.hidden_states.session import BoundLayer, HiddenStateSession
from otm.models.huggingface.model import HuggingFaceModel


class HiddenStateModel(LanguageModel):
    """A draft model of one layer that continues the target's hidden states ([li2024eagle]_).

    It reads the states that the target computed when it verified earlier drafts, so the target runs
    no additional pass.  Its output layer is the rows of the target's for the tokens that are
    frequent in the target's texts; all other tokens have probability zero.  Any drafter that
    samples from a model can use it: chains, trees, and every rule.

    Parameters
    ----------
    target : HuggingFaceModel
        The target model, which must also be the target of the decoding loop: the same object.
    layer : str or path
        Name of a layer that comes with this package, or a file that
        ``python -m otm.models.hidden_states.train`` has written for this target.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, or is for a target of other sizes.
    InvalidParameterError
        If the target is not a causal HuggingFaceModel with a cache, or already remembers the states
        of other layers.
    MissingDependencyError
        If torch or safetensors is not installed.

    Notes
    -----
    Before the target has read a context, its states are unknown.  The decoding loop therefore lets
    the target read the prompt before the first draft.

    References
    ----------
    .. [li2024eagle] Li et al., "EAGLE: Speculative Sampling Requires Rethinking Feature
       Uncertainty", ICML 2024.

    Examples
    --------
    ::

        target = HuggingFaceModel(AutoModelForCausalLM.from_pretrained(folder, dtype="bfloat16"))
        draft = HiddenStateModel(target, "SmolLM2-135M")
        speculative(target, draft, [tokens], rule="block", gamma=4)
    """

    def __init__(self, target: HuggingFaceModel, layer: AnyPath | LayerFile) -> None:
        require("torch")
        if not isinstance(target, HuggingFaceModel):
            raise InvalidParameterError(
                f"the target is a {type(target).__name__}; a draft that reads hidden states needs "
                "a HuggingFaceModel"
            )
        file = layer if isinstance(layer, LayerFile) else load_layer(layer)
        config, head = file.config, target.model.get_output_embeddings().weight
        if head.shape[1] != config.width or int(file.tokens.max()) >= target.vocabulary:
            raise InvalidInputError(
                f"the layer is for a target of width {config.width} with more than "
                f"{int(file.tokens.max())} tokens, but the target has width {head.shape[1]} and "
                f"{target.vocabulary} tokens; the layers in this package are for "
                f"{', '.join(SHIPPED)}"
            )
        self.vocabulary, self.context_length = target.vocabulary, target.context_length
        self.device = target.device
        weights = {k: w.to(self.device, head.dtype) for k, w in file.weights.items()}
        tokens = file.tokens.to(self.device)
        self.bound = BoundLayer(
            Layer(config, weights),
            target.remember_states(config.states),
            target.model.get_input_embeddings(),
            tokens,
            head.detach()[tokens].to(self.device),
            self.vocabulary,
            self.context_length,
        )

    def start(self, rows: int) -> Session:
        """Open a session with a number of empty rows.

        Parameters
        ----------
        rows : int
            Number of rows, at least 1.

        Returns
        -------
        Session
            A session whose rows have no tokens.
        """
        return HiddenStateSession(self.bound, rows)
