"""Lines that are longer than the model may read: split at sentence ends, never cut in silence."""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from mt.errors import LinesError

TokenT = TypeVar("TokenT")

# After a stop and its closing quotes or brackets; Chinese and Japanese stops need no space behind them.
_SENTENCE_END = re.compile(r"""(?<=[.!?…])\s+|(?<=[.!?…]["'”’»)\]])\s+|(?<=[。！？])""")


def split_sentences(text: str) -> list[str]:
    """The sentences of a line, by their stops; a line without any is one sentence."""
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence.strip()]


def pieces_of(
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], list[list[TokenT]]],
    *,
    max_length: int,
    first_line: int,
    refuse_long: bool,
) -> list[tuple[int, Sequence[TokenT]]]:
    """What is to be translated for each line: nothing for an empty one, several pieces for a long one.

    Args:
        texts: The lines.
        encode: Lines to tokens, without end mark.
        max_length: The most tokens the model may read, the end mark included.
        first_line: The number of the first line, for messages.
        refuse_long: Whether a *sentence* that is too long is an error, as a translator wants it; if not, it
            is cut into stretches, as an evaluation needs it, which must score every line.

    Returns:
        Pairs of an index into ``texts`` and tokens, in order.

    Raises:
        LinesError: If sentences are too long and ``refuse_long``.
    """
    pieces: list[tuple[int, Sequence[TokenT]]] = []
    reasons: dict[int, str] = {}
    for index, tokens in enumerate(encode(texts)):
        if len(tokens) < max_length:
            pieces += [(index, tokens)] if tokens else []
            continue
        for sentence in encode(split_sentences(texts[index])):
            if refuse_long and len(sentence) >= max_length:
                line = first_line + index
                reasons.setdefault(
                    line,
                    f"line {line} has a sentence of {len(sentence) + 1} tokens, and this model "
                    f"reads at most {max_length} (data.max_length when it was trained). "
                    "Break it into shorter sentences.",
                )
            width = max_length - 1
            pieces += [(index, sentence[at : at + width]) for at in range(0, len(sentence), width)]
    if reasons:
        raise LinesError(reasons)
    return pieces
