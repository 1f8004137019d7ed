"""Exact distributions of decoded sequences, from all paths through a decoding loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction

from otm.coupling.plan import TransportPlan
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.models import StatelessModel
from otm.testing.exact import regions, summed


def output_distribution_of(function: Callable[[Randomness], Path]) -> dict[Path, Fraction]:
    """Return the exact distribution of the output of a function of one source of uniforms.

    Parameters
    ----------
    function : callable
        Function from a source to a tuple of tokens.  A source is a function that returns m uniforms
        for a number m; a decoding loop uses one source for each sequence.  The function may use at
        most 64 uniforms, and only as `otm.testing.paths` allows.

    Returns
    -------
    dict from tuple of int to Fraction
        Probability of each sequence with positive probability; the probabilities sum to exactly 1.

    Raises
    ------
    InvalidInputError
        If the function uses a uniform in a way that `otm.testing.paths` does not allow.
    ProblemTooLargeError
        If the function uses more than 64 uniforms.

    Examples
    --------
    >>> from otm.decoding import autoregressive
    >>> from otm.models import TableModel
    >>> model = TableModel({(): [Fraction(1, 4), Fraction(3, 4)]})
    >>> probs = output_distribution_of(
    ...     lambda source: autoregressive(
    ...         model, [[0]], max_tokens=1, uniforms=[source]
    ...     ).sequences[0]
    ... )
    >>> probs == {(0,): Fraction(1, 4), (1,): Fraction(3, 4)}
    True
    >>> probs == sequence_distribution(model, (0,), 1)
    True
    """
    probs = summed(regions(function))
    # Outcomes that need one specific value of a uniform have probability zero.
    return {path: probability for path, probability in probs.items() if probability}


def sequence_distribution(
    model: StatelessModel, prompt: Path, length: int, end: int | None = None
) -> dict[Path, Fraction]:
    """Return the distribution of a model's next tokens, up to a length or an end token.

    Parameters
    ----------
    model : StatelessModel
        A model with probabilities in fractions.
    prompt : tuple of int
        Tokens of the prompt.
    length : int
        Largest number of new tokens.
    end : int, optional
        Token that ends a sequence.

    Returns
    -------
    dict from tuple of int to Fraction
        Probability of each sequence of new tokens, including the end token; the probabilities sum
        to exactly 1.

    Examples
    --------
    >>> from otm.models import TableModel
    >>> model = TableModel({(): [Fraction(1, 4), Fraction(3, 4)]})
    >>> for sequence, probability in sequence_distribution(model, (0,), 2, end=1).items():
    ...     print(sequence, probability)
    (0, 0) 1/16
    (0, 1) 3/16
    (1,) 3/4
    """
    probs: dict[Path, Fraction] = {(): Fraction(1)}
    for _ in range(length):
        longer: dict[Path, Fraction] = {}
        for path, probability in probs.items():
            if end is not None and end in path:
                longer[path] = probability
                continue
            for token, factor in enumerate(model.probs(prompt + path)):
                if factor:
                    longer[*path, token] = probability * factor
        probs = longer
    return probs


def continued_distribution(
    outputs: dict[Path, Fraction],
    model: StatelessModel,
    prompt: Path,
    length: int,
    end: int | None = None,
) -> dict[Path, Fraction]:
    """Return the distribution of outputs after a model continues them up to a length or end token.

    If a decoder is lossless and the target continues its outputs, the result is the target's
    `sequence_distribution`.  So the outputs of one step, whose lengths differ, can be compared with
    the target.

    Parameters
    ----------
    outputs : dict from tuple of int to Fraction
        Probability of each output, of at most `length` tokens.
    model : StatelessModel
        A model with probabilities in fractions.
    prompt : tuple of int
        Tokens of the prompt.
    length : int
        Largest number of new tokens.
    end : int, optional
        Token that ends a sequence.

    Returns
    -------
    dict from tuple of int to Fraction
        Probability of each continued output.

    Examples
    --------
    >>> from otm.models import TableModel
    >>> model = TableModel({(): [Fraction(1, 4), Fraction(3, 4)]})
    >>> one_token = sequence_distribution(model, (0,), 1)
    >>> two_tokens = continued_distribution(one_token, model, (0,), 2)
    >>> two_tokens == sequence_distribution(model, (0,), 2)
    True
    """
    probs: dict[Path, Fraction] = defaultdict(Fraction)
    for path, probability in outputs.items():
        missing = 0 if end is not None and end in path else length - len(path)
        for added, factor in sequence_distribution(model, prompt + path, missing, end).items():
            probs[path + added] += probability * factor
    return dict(probs)


def by_conditional(rule: type[TransportPlan]) -> type[TransportPlan]:
    """Return a variant of a rule that samples from `conditional` with one uniform.

    The variant has far fewer paths to explore.  The tests of each rule show that `select` has the
    distribution `conditional`.
    """
    draw_from_conditional = {"_select": TransportPlan._select, "uniforms_per_selection": 1}
    return type(rule.__name__, (rule,), draw_from_conditional)
