"""Attention as text for other programs: all weights as JSON, word alignments in the Pharaoh format."""

import json
from collections.abc import Iterable, Iterator

from torch import Tensor

from mt.attention_maps.alignment import AligningHeads
from mt.inference.model_translator import SentenceAttention

# Decimal places of a weight; rows still sum to 1 to six digits.
_DIGITS = 8


def as_json(heads: AligningHeads, sentences: Iterable[SentenceAttention]) -> Iterator[str]:
    """One JSON object with the tokens, weights and word alignment of each sentence, in parts.

    ``cross[layer][head][row][column]`` and the others are as in `SentenceAttention`; ``src_words`` and
    ``tgt_words`` say which word of the sentence each token is part of, null for EOS.
    """
    yield f'{{"alignment_layer": {heads.layer + 1}, "sentences": ['
    for number, sentence in enumerate(sentences):
        yield (", " if number else "") + json.dumps(_as_dict(heads, sentence))
    yield "]}\n"


def _as_dict(heads: AligningHeads, sentence: SentenceAttention) -> dict[str, object]:
    return {
        "line": sentence.line,
        "source": sentence.src.text,
        "target": sentence.tgt.text,
        "src_tokens": [token.label for token in sentence.src.tokens],
        "tgt_tokens": [token.label for token in sentence.tgt.tokens],
        "tgt_inputs": [token.label for token in sentence.tgt_inputs],
        "src_words": [token.word for token in sentence.src.tokens],
        "tgt_words": [token.word for token in sentence.tgt.tokens],
        "alignment": heads.words(sentence),
        "encoder_self": _rounded(sentence.encoder_self),
        "decoder_self": _rounded(sentence.decoder_self),
        "cross": _rounded(sentence.cross),
    }


def _rounded(weights: Tensor) -> object:
    return (weights.double() * 10**_DIGITS).round().div(10**_DIGITS).tolist()


def as_pharaoh(heads: AligningHeads, sentences: Iterable[SentenceAttention]) -> Iterator[str]:
    """A line for each sentence: ``i-j`` pairs of a source and a target word, counted from 0, sorted."""
    for sentence in sentences:
        yield " ".join(f"{i}-{j}" for i, j in sorted(heads.words(sentence))) + "\n"
