"""Exact distributions of decoded sequences, by every path of the loop's own comparisons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction

from otm.coupling.plan import TransportPlan
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.models import TableModel
from otm.testing.exact import regions, summed


def output_distribution_of(function: Callable[[Randomness], Path]) -> dict[Path, Fraction]:
    """Exact distribution of the output of a function of one source of uniforms.

    Parameters
    ----------
    function : callable
        Takes a source, which returns m uniforms for a number m, as decoding loops take one for each
        sequence, and returns a tuple of tokens.  It may use at most 64 uniforms, and only compare
        them.

    Returns
    -------
    dict from tuple of int to Fraction
        Probability of each sequence of tokens whose probability is positive; they sum to exactly 1.

    Raises
    ------
    InvalidInputError
        As for `otm.testing.paths`.
    ProblemTooLargeError
        If it uses more than 64 uniforms.

    Examples
    --------
    >>> from otm.decoding import autoregressive
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
    # what isolated values of a uniform give has no part in the distribution
    return {path: probability for path, probability in probs.items() if probability}


def sequence_distribution(
    model: TableModel, prompt: Path, length: int, end: int | None = None
) -> dict[Path, Fraction]:
    """Distribution of the next tokens of a model, up to a length or an end token.

    Parameters
    ----------
    model : TableModel
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
        Probability of each sequence of new tokens, the end token included; they sum to exactly 1.

    Examples
    --------
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
    model: TableModel,
    prompt: Path,
    length: int,
    end: int | None = None,
) -> dict[Path, Fraction]:
    """Distribution of outputs that a model continues up to a length or an end token.

    If a decoder is lossless, its outputs continued by the target have the `sequence_distribution`
    of the target.  So one step, whose outputs differ in length, can be compared with the target.

    Parameters
    ----------
    outputs : dict from tuple of int to Fraction
        Probability of each output, of at most `length` tokens.
    model : TableModel
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
    >>> model = TableModel({(): [Fraction(1, 4), Fraction(3, 4)]})
    >>> one_token = sequence_distribution(model, (0,), 1)
    >>> two_tokens = continued_distribution(one_token, model, (0,), 2)
    >>> two_tokens == sequence_distribution(model, (0,), 2)
    True
    """
    whole: dict[Path, Fraction] = defaultdict(Fraction)
    for path, probability in outputs.items():
        left = 0 if end is not None and end in path else length - len(path)
        for rest, factor in sequence_distribution(model, prompt + path, left, end).items():
            whole[path + rest] += probability * factor
    return dict(whole)


def by_conditional(rule: type[TransportPlan]) -> type[TransportPlan]:
    """Let a rule draw from its own `conditional` with one uniform: far fewer paths to follow.

    That `select` has it is tested where the rules are.
    """
    draw_from_conditional = {"_select": TransportPlan._select, "uniforms_per_selection": 1}
    return type(rule.__name__, (rule,), draw_from_conditional)
