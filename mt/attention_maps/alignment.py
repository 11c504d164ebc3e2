"""Attention maps of sentences and their translations, and the words that they align."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mt.inference.alignment_layer import AlignmentLayer, aligning_layer, choose_layer
from mt.inference.attention import SentenceAttention, check_recordable, found_attention, sentence_attention
from mt.inference.labels import aligned_words
from mt.inference.model_translator import ModelTranslator
from mt.inference.segments import Translation
from mt.search.strategy import Strategy

# The weights of a base model are 0.4 MB for a pair of 26 tokens each, and 9.4 MB for one of 128.
_LINES_AT_ONCE = 32


@dataclass(frozen=True)
class AttentionMaps:
    """The attention of some sentences, with the layer that aligns them."""

    sentences: Sequence[SentenceAttention]
    layer: AlignmentLayer


def attention_maps(
    translator: ModelTranslator,
    sources: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    strategy: Strategy = None,
    layer: int | None = None,
) -> AttentionMaps:
    """Record the attention of sentences and their translations, and choose the layer that aligns them.

    Without ``targets`` it is that of the translations that the model makes with ``strategy``. ``layer`` is
    the decoder layer to align with, counted from 0; None chooses it by the rule.
    """
    sentences = sentence_attention(translator, sources, targets, strategy=strategy)
    chosen = aligning_layer(translator, layer) or choose_layer(translator, sentences)
    return AttentionMaps(sentences, chosen)


def attention_line_by_line(
    translator: ModelTranslator,
    sources: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    strategy: Strategy = None,
    layer: int | None = None,
) -> tuple[AlignmentLayer, Iterator[SentenceAttention]]:
    """The layer and the sentences of `attention_maps`, for any number of lines.

    The attention of a sentence is only recorded when it is due, because the weights of many do not fit into
    memory; a sentence that is too long is reported before anything is recorded.
    """

    def blocks() -> Iterator[tuple[int, Sequence[str], Sequence[str] | None]]:
        for start in range(0, len(sources), _LINES_AT_ONCE):
            block = slice(start, start + _LINES_AT_ONCE)
            yield start + 1, sources[block], None if targets is None else targets[block]

    def recorded() -> Iterator[SentenceAttention]:
        for first, some, theirs in blocks():
            yield from sentence_attention(translator, some, theirs, strategy=strategy, first_line=first)

    for first, some, theirs in blocks():
        check_recordable(translator, some, theirs, first_line=first)
    return aligning_layer(translator, layer) or choose_layer(translator, recorded()), recorded()


def word_alignments(
    translator: ModelTranslator,
    source: str,
    translations: Sequence[Translation],
    layer: AlignmentLayer | None,
) -> list[list[tuple[int, int]] | None]:
    """Align the words of a text with those of translations that the translator has made of it.

    Returns the result of `aligned_words` for each translation; None for all if the text was translated in
    parts. The layer is that of `aligning_layer`; None applies the rule to these translations.
    """
    if any(len(each.parts) > 1 for each in translations):
        return [None] * len(translations)
    sentences = found_attention(translator, source, translations)
    chosen = layer or choose_layer(translator, sentences)
    return [
        aligned_words(each.src_tokens, each.tgt_tokens, chosen.alignment(each).tolist()) for each in sentences
    ]
