"""Attention as text for other programs: all weights as JSON, word alignments in the Pharaoh format."""

import json

from torch import Tensor

from mt.attention_maps.alignment import AttentionMaps, aligned_words
from mt.inference.attention import SentenceAttention

# Decimal places of a weight; rows still sum to 1 to six digits.
_DIGITS = 8


def as_json(maps: AttentionMaps) -> str:
    """All sentences with tokens, weights and word alignment, as one JSON object.

    ``cross[layer][head][row][column]`` and the others are as in `SentenceAttention`; ``src_words`` and
    ``tgt_words`` say which word of the sentence each token is part of, null for EOS.
    """
    data = {
        "alignment_layer": maps.layer.index + 1,
        "sentences": [_as_dict(maps, sentence) for sentence in maps.sentences],
    }
    return json.dumps(data) + "\n"


def _as_dict(maps: AttentionMaps, sentence: SentenceAttention) -> dict[str, object]:
    return {
        "line": sentence.line,
        "source": sentence.source,
        "target": sentence.target,
        "src_tokens": [token.label for token in sentence.src_tokens],
        "tgt_tokens": [token.label for token in sentence.tgt_tokens],
        "tgt_inputs": [token.label for token in sentence.tgt_inputs],
        "src_words": [token.word for token in sentence.src_tokens],
        "tgt_words": [token.word for token in sentence.tgt_tokens],
        "alignment": aligned_words(sentence, maps.alignment(sentence)),
        "encoder_self": _rounded(sentence.encoder_self),
        "decoder_self": _rounded(sentence.decoder_self),
        "cross": _rounded(sentence.cross),
    }


def _rounded(weights: Tensor) -> object:
    return (weights.double() * 10**_DIGITS).round().div(10**_DIGITS).tolist()


def as_pharaoh(maps: AttentionMaps) -> str:
    """A line for each sentence: ``i-j`` pairs of a source and a target word, counted from 0, sorted."""
    lines = (sorted(aligned_words(sentence, maps.alignment(sentence))) for sentence in maps.sentences)
    return "".join(" ".join(f"{i}-{j}" for i, j in pairs) + "\n" for pairs in lines)
