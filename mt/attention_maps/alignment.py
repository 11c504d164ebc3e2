"""Attention maps of sentences and their translations, and the words that they align."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from mt.errors import ConfigError
from mt.inference.labels import aligned_words
from mt.inference.model_translator import ModelTranslator, SentenceAttention
from mt.search.strategy import Strategy

# The weights of a base model are 0.4 MB for a pair of 26 tokens each, and 9.4 MB for one of 128.
_LINES_AT_ONCE = 32


@dataclass(frozen=True)
class AligningHeads:
    """The heads of the decoder whose attention to the source, averaged, is the alignment."""

    layer: int
    """Counted from 0, the lowest layer."""
    num_heads: int
    """How many of its heads: the first ones."""

    def __str__(self) -> str:
        heads = "its first head" if self.num_heads == 1 else "the mean of its heads"
        return f"decoder layer {self.layer + 1}, {heads}"

    def weights(self, sentence: SentenceAttention) -> Tensor:
        """How much each target token attends to each source token: ``(T, S)``, EOS included."""
        return sentence.cross[self.layer, : self.num_heads].mean(0)

    def words(self, sentence: SentenceAttention) -> list[tuple[int, int]]:
        """The result of `aligned_words`."""
        return aligned_words(sentence.src.tokens, sentence.tgt.tokens, self.weights(sentence).tolist())


@dataclass(frozen=True)
class AttentionMaps:
    """The attention of some sentences, with the heads that align them."""

    sentences: Sequence[SentenceAttention]
    heads: AligningHeads


def aligning_heads(translator: ModelTranslator, layer: int | None = None) -> AligningHeads:
    """All heads of the given decoder layer, counted from 0; without one, those that align best by rule."""
    model = translator.config.model
    if layer is None:
        return AligningHeads(*translator.config.aligning_heads)
    if not 0 <= layer < model.num_decoder_layers:
        raise ConfigError(
            f"there is no decoder layer {layer + 1}: this model has {model.num_decoder_layers}, "
            "counted from 1."
        )
    return AligningHeads(layer, model.num_heads)


def attention_maps(
    translator: ModelTranslator,
    sources: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    strategy: Strategy = None,
    layer: int | None = None,
) -> AttentionMaps:
    """Record the attention of sentences and their translations, with the heads that align them.

    Without ``targets`` it is that of the translations that the model makes with ``strategy``. ``layer`` is
    the decoder layer to align with, counted from 0.
    """
    heads = aligning_heads(translator, layer)
    return AttentionMaps(translator.attention(sources, targets, strategy=strategy), heads)


def attention_line_by_line(
    translator: ModelTranslator, sources: Sequence[str], targets: Sequence[str] | None = None
) -> Iterator[SentenceAttention]:
    """The attention of any number of sentences.

    That of a sentence is only recorded when it is due, because the weights of many do not fit into memory; a
    sentence that is too long is reported before anything is recorded.
    """

    def blocks() -> Iterator[tuple[int, Sequence[str], Sequence[str] | None]]:
        for start in range(0, len(sources), _LINES_AT_ONCE):
            block = slice(start, start + _LINES_AT_ONCE)
            yield start + 1, sources[block], None if targets is None else targets[block]

    for first, some, theirs in blocks():
        translator.read_pairs(some, theirs or [""] * len(some), first_line=first)
    return (
        sentence
        for first, some, theirs in blocks()
        for sentence in translator.attention(some, theirs, first_line=first)
    )
