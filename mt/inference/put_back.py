"""Puts what must stay, but was not copied, where the words around it were translated to."""

from collections.abc import Sequence
from dataclasses import replace

from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.word_level import SPACE_BYTE, SPACE_MARK
from mt.inference.engines import Attention
from mt.inference.source_reader import SourceToken
from mt.search.hypothesis import Hypothesis
from mt.special_tokens import UNK_ID


def lost_positions(tokens: Sequence[SourceToken], hypothesis: Hypothesis) -> list[int]:
    """The source positions of what must stay, but was not copied."""
    positions = [position for position, token in enumerate(tokens) if token.must_stay]
    return [position for position in positions if position not in hypothesis.copied]


def put_back(
    tokens: Sequence[SourceToken],
    hypothesis: Hypothesis,
    attention: Attention,
    tokenizer: Tokenizer,
    first: int = 0,
) -> Hypothesis:
    """A translation in which all is copied that must stay.

    Each is put before the word that attends most to the word that follows it in the source, or behind the one
    that attends most to the word before; not before token ``first``.
    """
    starts = _word_starts(hypothesis.ids, tokenizer)
    places: list[tuple[int, int]] = []
    for position in lost_positions(tokens, hypothesis):
        after = _next_word(tokens, range(position + 1, len(tokens)))
        nearest = after if after is not None else _next_word(tokens, range(position - 1, -1, -1))
        place = len(hypothesis.ids)
        # The last token of the longest translation is not read.
        steps = range(first, min(place, len(attention)))
        if nearest is not None and steps:
            place = max(steps, key=lambda step: attention[step][nearest])
            if after is None:
                place += 1
            while not starts[place]:
                place += 1 if after is None else -1
        places.append((max(place, first), position))
    ids = [*hypothesis.ids]
    copied = [*hypothesis.copied]
    rows = [*attention]
    # From the end, so that the places before stay what they are.
    for place, position in sorted(places, reverse=True):
        copied.insert(ids[:place].count(UNK_ID), position)
        ids.insert(place, UNK_ID)
        row = [0.0] * len(tokens)
        row[position] = 1.0
        rows.insert(place, row)
    return replace(hypothesis, ids=ids, copied=copied, attention=rows)


def _next_word(tokens: Sequence[SourceToken], positions: range) -> int | None:
    """The first of these positions at which there is a word that is translated."""
    for position in positions:
        token = tokens[position]
        if not token.must_stay and any(map(str.isalnum, token.text)):
            return position
    return None


def _word_starts(ids: Sequence[int], tokenizer: Tokenizer) -> list[bool]:
    """Whether a word of its own can stand before each token, and at the end."""
    starts = []
    for step, token in enumerate(tokenizer.tokens(ids)):
        is_part = any(map(str.isalnum, token)) and not token.startswith((SPACE_MARK, SPACE_BYTE))
        follows_space = step == 0 or ids[step - 1] in tokenizer.spaces
        starts.append(tokenizer.has_words or not is_part or follows_space)
    return [*starts, True]
