# SPDX-License-Identifier: Apache-2.0
"""Options of a multiple-choice question: structured, or from prose when there is only one way to read it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym_video.errors import Where
from nemo_gym_video.prepare.mcqa_prompt import LETTERS
from nemo_gym_video.prepare.outcome import Refusal

# A letter A to J, maybe in parentheses, at the start of the text or after white space.
_LABEL = re.compile(r"(?:^|(?<=\s))(?:\(([A-J])\)|([A-J])([.):]))", re.MULTILINE)
_LEADING_LABEL = re.compile(r"\s*(?:\(([A-Z])\)|([A-Z])[.):])\s*")
_ANSWER = re.compile(r"\s*\(?([A-Za-z])\)?\s*(?:[.):]\s*(.*))?", re.DOTALL)
# Options that name others by place or letter keep their order.
_ORDERED = re.compile(r"\b(?:above|below|both [a-j] and [a-j]|[a-j] and [a-j]|[a-j] or [a-j])\b", re.IGNORECASE)


_STYLES = ("()", ".", ")", ":")


@dataclass(frozen=True, slots=True)
class Label:
    """A possible option label in a text: ``letter``, the ``style`` of its mark, where it begins and its text."""

    letter: str
    style: str
    start: int
    end: int
    starts_line: bool


def structured_options(value: object, *, where: Where) -> list[str]:
    """Option texts, labels stripped, from a list of strings, of one-key objects, or from an object by letter.

    Raises:
        Refusal: fewer than two or more than ten, labels on some only or out of order, empty or repeated texts.
    """
    pairs = list(_pairs(value, where))
    letters = [letter for letter, _ in pairs if letter is not None]
    texts = [text.strip() for _, text in pairs]
    if not letters:
        found = [_LEADING_LABEL.match(text) for text in texts]
        if all(found):
            letters = [(match[1] or match[2]) for match in found if match]
            texts = [text[match.end() :].strip() for text, match in zip(texts, found, strict=True) if match]
    if letters and letters != list(LETTERS[: len(texts)]):
        raise Refusal("option_mismatch", "option labels are not A, B, C … in order", got=letters, where=where)
    return checked_options(texts, where=where)


def _pairs(value: object, where: Where) -> Iterator[tuple[str | None, str]]:
    entries: Sequence[Any]
    if isinstance(value, Mapping):
        entries = [{key: text} for key, text in value.items() if text is not None]
    elif isinstance(value, list | tuple):
        entries = value
    else:
        raise Refusal("option_mismatch", "options are neither a list nor an object", got=value, where=where)
    for entry in entries:
        if isinstance(entry, Mapping):
            # Parquet gives every option object all keys, with null for those that it lacks.
            filled = [(key, text) for key, text in entry.items() if text is not None]
            if len(filled) != 1:
                raise Refusal("option_mismatch", "an option object has not one key", got=entry, where=where)
            letter, text = filled[0]
        else:
            letter, text = None, entry
        if not isinstance(text, str):
            raise Refusal("option_mismatch", "an option is no text", got=text, where=where)
        yield letter, text


def checked_options(texts: list[str], *, where: Where) -> list[str]:
    """``texts`` when there are two to ten, none empty, none repeated (case and white space folded)."""
    if not 2 <= len(texts) <= len(LETTERS):
        raise Refusal("option_mismatch", "number of options", got=len(texts), allowed="2 to 10", where=where)
    folded = [fold(text) for text in texts]
    if "" in folded or len(set(folded)) != len(folded):
        raise Refusal("option_mismatch", "an option is empty or repeated", got=texts, where=where)
    return texts


def options_from_prose(prompt: str, *, where: Where) -> tuple[str, list[str]]:
    """The question before the options and the options' texts, from a prompt that lists them in its text.

    Labels that start lines count before labels within lines; all must have one style of mark and read A, B, C …,
    each letter once, after an ``A`` that is the only one. "vitamin C: do?" holds no option, "A.one B.two" two.

    Raises:
        Refusal: there is no such list, or more than one way to read it.
    """
    starts = _line_starts(prompt)
    labels = [
        Label(match[1] or match[2], match[3] or "()", match.start(), match.end(), match.start() in starts)
        for match in _LABEL.finditer(prompt)
    ]
    lines = [label for label in labels if label.starts_line]
    for candidates in (lines, labels):
        found = (_chain(candidates, style, strict=candidates is lines, where=where) for style in _STYLES)
        chains = [chain for chain in found if chain]
        if len(chains) > 1:
            raise Refusal(
                "option_mismatch", "options in the text can be read in two ways", got=prompt, where=where
            )
        if chains:
            return _cut(prompt, chains[0], where)
    raise Refusal("option_mismatch", "no options, structured or in the text", got=prompt, where=where)


def _line_starts(text: str) -> set[int]:
    """Where each line's first character that is no white space stands."""
    starts, offset = set(), 0
    for line in text.split("\n"):
        starts.add(offset + len(line) - len(line.lstrip()))
        offset += len(line) + 1
    return starts


def _chain(labels: list[Label], style: str, *, strict: bool, where: Where) -> list[Label]:
    """The labels A, B, C … of one style, empty when there are fewer than two.

    Letters before the first A are words of the question ("Plan B. is"), unless ``strict``.
    """
    same = [label for label in labels if label.style == style]
    first = next((place for place, label in enumerate(same) if label.letter == "A"), None)
    if first is None:
        return []
    chain = same if strict else same[first:]
    letters = "".join(label.letter for label in chain)
    if len(chain) < 2:
        return []
    if letters != LETTERS[: len(chain)]:
        raise Refusal("option_mismatch", "option labels in the text are ambiguous", got=letters,
                      allowed="A, B, C …, each once", where=where)  # fmt: skip
    return chain


def _cut(prompt: str, chain: list[Label], where: Where) -> tuple[str, list[str]]:
    ends = [label.start for label in chain[1:]]
    last = prompt.find("\n", chain[-1].end)
    ends.append(last if last >= 0 else len(prompt))
    texts = [prompt[label.end : end].strip() for label, end in zip(chain, ends, strict=True)]
    return prompt[: chain[0].start].strip(), checked_options(texts, where=where)


def answer_place(answer: object, options: Sequence[str], *, where: Where) -> int:
    """Which option ``answer`` names: a letter, a letter with that option's text, or one option's whole text.

    Raises:
        Refusal: missing, or none or more than one option.
    """
    if not isinstance(answer, str) or not answer.strip():
        raise Refusal("bad_answer", "answer is missing", got=answer, where=where)
    whole = [place for place, text in enumerate(options) if fold(text) == fold(answer)]
    match = _ANSWER.fullmatch(answer)
    letter = LETTERS.find(match[1].upper()) if match else -1
    if 0 <= letter < len(options) and match is not None:
        named = match[2]
        agrees = not named or fold(named) == fold(options[letter])
        if agrees and whole in ([], [letter]):
            return letter
    elif len(whole) == 1:
        return whole[0]
    raise Refusal("bad_answer", "answer names no option", got=answer, allowed=_allowed(options), where=where)


def _allowed(options: Sequence[str]) -> str:
    return ", ".join(LETTERS[: len(options)]) + ", or an option's text"


def keeps_order(options: Sequence[str]) -> bool:
    """Whether an option speaks of the others ("all of the above", "both A and B"), so that none may move."""
    return any(_ORDERED.search(text) for text in options)


def fold(text: str) -> str:
    """Case and white space folded."""
    return " ".join(text.split()).casefold()
