"""Windows of tokens for two Hugging Face models, from a text or from answers of the target."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from otm._core.files.paths import AnyPath, as_path, file_label, read_whole
from otm._core.numbers import as_positive
from otm._core.optional import require
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidInputError
from otm.gain.reports.answers import answer_prompts
from otm.gain.reports.model_pair import ModelPair
from otm.models.huggingface.chat import uses_template
from otm.models.huggingface.loading import load_pair

LONGEST_TEXT = 2**28


def from_models(
    draft: AnyPath,
    target: AnyPath,
    text: AnyPath,
    *,
    prompts: AnyPath | None = None,
    window: int = 128,
    sampled: bool = False,
    device: str | None = None,
    chat: bool | None = None,
    sampling: SamplingParameters | None = None,
    seed: int = 0,
) -> ModelPair:
    """Take the positions of a text that two Hugging Face models read.

    An instruct model is used through its chat template. If the target's tokenizer has a template,
    the paragraphs of the text are therefore messages of a user: the target answers each message,
    and the positions are the tokens of its answers. Otherwise the models read the text as it is.

    Parameters
    ----------
    draft, target : str or Path
        A folder or a name on the hub, as `from_pretrained` takes it.
    text : str or Path
        Text in UTF-8. The paragraphs of the text, separated by empty lines, are the prompts. A
        paragraph longer than a window continues in the next window, which does not see the tokens
        before it.
    prompts : str or Path, optional
        File with as many lines as `text`; each line names the prompt that this line of `text`
        belongs to. Consecutive lines with the same name are read as one text. If each line is a
        separate prompt, give the file of `text` here too.
    window : int, optional
        Largest number of tokens that the models read at once, at least 1; with a chat template, of
        an answer.
    sampled : bool, optional
        Whether the target sampled this text, at the temperature of the report. Answers are always
        sampled.
    device : str, optional
        Device of the models, such as "cuda"; by default the CPU.
    chat : bool, optional
        Whether the text's prompts go through the chat template. The default is whether the
        target's tokenizer has a template.
    sampling : SamplingParameters, optional
        How the target samples its answers; the report must have the same.
    seed : int, optional
        Seed of the answers.

    Returns
    -------
    ModelPair
        A `Source` for `report`.

    Raises
    ------
    InvalidInputError
        If a text or a model cannot be read, `text` and `prompts` have different numbers of lines,
        or the models' tokens differ. The same error is raised if `sampled` is true for messages.
    InvalidParameterError
        If `window` is not an integer of at least 1, or `chat` is true without a template.
    MissingDependencyError
        If transformers is not installed.
    """
    require("transformers")
    length = as_positive(window, "window")
    lines = _lines(as_path(text))
    if prompts is None:
        passages = list(enumerate(_paragraphs(lines)))
    else:
        passages = _join_lines_by_name(lines, _lines(as_path(prompts)), file_label(prompts))
    pair = load_pair(draft, target, device)
    configs = [model.config.get_text_config(decoder=True) for model in (pair.draft, pair.target)]
    reaches = [getattr(config, "max_position_embeddings", None) for config in configs]
    reach = min(filter(None, reaches), default=None)
    if uses_template(pair.tokenizer, chat):
        if sampled:
            raise InvalidInputError(
                "the target has a chat template, so the paragraphs of the text are messages, which "
                "the target answers; omit `sampled` (--sampled), or give chat=False (--no-chat) to "
                "read the text as it is"
            )
        how = sampling or SamplingParameters()
        messages = [message for _, message in passages]
        answered, sizes = answer_prompts(pair, messages, length, how, seed)
        return ModelPair(
            pair.draft,
            pair.target,
            answered,
            np.array([number for number, _ in passages]),
            pair.vocabulary,
            sampled=True,
            prompt_sizes=sizes,
            answers=how,
        )
    windows, prompt_of_window = [], []
    for number, passage in passages:
        tokens = np.array(pair.tokenizer(passage, verbose=False).input_ids, dtype=np.int64)
        for start in range(0, tokens.size, length):
            if tokens[start : start + length].size > 1:
                windows.append(tokens[start : start + length])
                prompt_of_window.append(number)
    if not windows:
        raise InvalidInputError(
            f"{file_label(text)} has no two consecutive tokens in a window; give a longer text"
        )
    # the models need not read the last token of a window
    longest = max(tokens.size for tokens in windows) - 1
    if reach is not None and longest > reach:
        raise InvalidInputError(
            f"window = {length}; a model reads at most {reach} tokens: give a window of "
            f"{reach + 1} or less"
        )
    of_windows = np.array(prompt_of_window)
    return ModelPair(pair.draft, pair.target, windows, of_windows, pair.vocabulary, sampled)


def _lines(path: Path) -> list[str]:
    data = read_whole(path, LONGEST_TEXT, "texts")
    try:
        return [line.strip() for line in data.decode("utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file_label(path)} is not UTF-8: {error!s:.100}") from None


def _paragraphs(lines: list[str]) -> list[str]:
    return [part for block in "\n".join(lines).split("\n\n") if (part := block.strip())]


def _join_lines_by_name(lines: list[str], names: list[str], label: str) -> list[tuple[int, str]]:
    """Join consecutive lines with the same name; return pairs of name number and nonempty text."""
    if len(names) != len(lines):
        raise InvalidInputError(
            f"{label} has {len(names):,} lines and the text {len(lines):,}; give one prompt name "
            "for each line of the text"
        )
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    passages = []
    for name, group in itertools.groupby(zip(names, lines, strict=True), lambda pair: pair[0]):
        if passage := "\n".join(line for _, line in group).strip():
            passages.append((numbers[name], passage))
    return passages
