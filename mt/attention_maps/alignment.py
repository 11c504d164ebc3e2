"""From attention to alignment: which layer to use, and which words it links.

One rule holds for every model. The candidates are the decoder's layers, each with the cross-attention of its
heads averaged. The rule chooses the layer that most often attends most to the source token on which the
prediction depends most: the token without which the probability of the target token falls furthest. This is
measured on the first sentence pairs of the run's validation split. EOS is ignored on both sides.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from mt.data.corpus import load_split
from mt.errors import ConfigError, LinesError, MtError
from mt.inference.attention import (
    SentenceAttention,
    Token,
    found_attention,
    refuse_unrecordable,
    sentence_attention,
    source_dependence,
)
from mt.inference.segments import Translation
from mt.inference.translator import Translator
from mt.search.strategy import Strategy
from mt.transformer.transformer import Transformer

LOG = logging.getLogger(__name__)

# Enough for about 200 tokens, on which the layers of a trained model differ by far more than chance.
_NUM_PAIRS_MEASURED = 20
# The weights of a base model are 0.4 MB for a pair of 26 tokens each, and 9.4 MB for one of 128.
_LINES_AT_ONCE = 32


@dataclass(frozen=True)
class AlignmentLayer:
    """The decoder layer whose attention, averaged over heads, is used as the alignment."""

    index: int
    """Counted from 0, the lowest layer."""
    agreement: float | None
    """The share of target tokens for which it attends most to the source token that the prediction depends on
    most; None if that was not measured, because the layer was given or no pair has text on both sides."""

    def alignment(self, sentence: SentenceAttention) -> Tensor:
        """How much each target token attends to each source token: ``(T, S)``, EOS included."""
        return sentence.cross[self.index].mean(0)


@dataclass(frozen=True)
class AttentionMaps:
    """The attention of some sentences, with the layer that aligns them."""

    sentences: Sequence[SentenceAttention]
    layer: AlignmentLayer


def attention_maps(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    strategy: Strategy = None,
    layer: int | None = None,
) -> AttentionMaps:
    """Record the attention of sentences and their translations, and choose the layer that aligns them.

    Args:
        translator: One model, not an ensemble.
        sources: The sentences.
        targets: The translation of each; None for the one that the model finds.
        strategy: The decoding strategy that finds it.
        layer: The decoder layer to use for the alignment, counted from 0; None to choose it by the rule.
    """
    sentences = sentence_attention(translator, sources, targets, strategy=strategy)
    chosen = aligning_layer(translator, layer) or choose_layer(translator, sentences)
    return AttentionMaps(sentences, chosen)


def attention_line_by_line(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    strategy: Strategy = None,
    layer: int | None = None,
) -> tuple[AlignmentLayer, Iterator[SentenceAttention]]:
    """The layer and the sentences of `attention_maps`, for any number of lines.

    The attention of a sentence is only recorded when it is due, because the weights of many do not fit into
    memory. The arguments and the errors are those of `attention_maps`; a sentence that is too long is found
    before anything is recorded.
    """

    def blocks() -> Iterator[tuple[int, Sequence[str], Sequence[str] | None]]:
        for start in range(0, len(sources), _LINES_AT_ONCE):
            block = slice(start, start + _LINES_AT_ONCE)
            yield start + 1, sources[block], None if targets is None else targets[block]

    def recorded() -> Iterator[SentenceAttention]:
        for first, some, theirs in blocks():
            yield from sentence_attention(translator, some, theirs, strategy=strategy, first_line=first)

    for first, some, theirs in blocks():
        refuse_unrecordable(translator, some, theirs, first_line=first)
    return aligning_layer(translator, layer) or choose_layer(translator, recorded()), recorded()


def aligning_layer(translator: Translator, layer: int | None = None) -> AlignmentLayer | None:
    """The layer that aligns every sentence: the given layer, or the one that the rule chooses.

    Args:
        translator: One model, not an ensemble.
        layer: A decoder layer, counted from 0.

    Returns:
        None if the run's validation split, which the rule needs, cannot be read.
    """
    if layer is None:
        pairs = _validation_pairs(translator)
        return choose_layer(translator, pairs) if pairs else None
    num_layers = translator.config.model.num_decoder_layers
    if not 0 <= layer < num_layers:
        raise ConfigError(
            f"there is no decoder layer {layer + 1}: this model has {num_layers}, counted from 1."
        )
    return AlignmentLayer(layer, None)


def word_alignments(
    translator: Translator, source: str, translations: Sequence[Translation], layer: AlignmentLayer | None
) -> list[list[tuple[int, int]] | None]:
    """Align the words of a text with those of translations that the translator has found.

    Args:
        translator: One model, not an ensemble.
        source: The text.
        translations: Its translations.
        layer: The layer of `aligning_layer`; None applies the rule to these translations.

    Returns:
        The result of `aligned_words` for each translation; None for all if the text was translated in parts.
    """
    if any(len(each.parts) > 1 for each in translations):
        return [None] * len(translations)
    sentences = found_attention(translator, source, translations)
    chosen = layer or choose_layer(translator, sentences)
    return [aligned_words(each, chosen.alignment(each)) for each in sentences]


def _validation_pairs(translator: Translator) -> list[SentenceAttention]:
    """The first pairs of the validation split that have text and fit; none if the corpus cannot be read."""
    config = translator.config
    try:
        # With the cleaning of the run, or a cached corpus would not be found.
        rows = load_split(config.data, "validation", config.cleaning)
    except MtError as error:
        LOG.info(
            "the layer is chosen on the given sentences, because the validation split is missing: %s", error
        )
        return []
    found: list[SentenceAttention] = []
    for row in islice(rows, 10 * _NUM_PAIRS_MEASURED):
        if len(found) < _NUM_PAIRS_MEASURED:
            with contextlib.suppress(LinesError):
                recorded = sentence_attention(translator, [row["src"]], [row["tgt"]])
                found += [each for each in recorded if each.src_ids and each.tgt_ids]
    return found


def choose_layer(translator: Translator, sentences: Iterable[SentenceAttention]) -> AlignmentLayer:
    """Choose the layer by the rule of this module on these sentences; if equally good, the lowest one."""
    model = translator.plain_model
    assert isinstance(model, Transformer)
    hits = []
    num_tokens = 0
    for sentence in sentences:
        if not (sentence.src_ids and sentence.tgt_ids):
            continue
        dependence = source_dependence(model, sentence.src_ids, sentence.tgt_ids, translator.device)
        attended = sentence.cross.mean(1)[:, :-1, :-1].argmax(-1)
        hits.append((attended == dependence.argmax(-1)).sum(-1))
        num_tokens += len(sentence.tgt_ids)
    if not hits:
        return AlignmentLayer(0, None)
    agreement = torch.stack(hits).sum(0) / num_tokens
    return AlignmentLayer(int(agreement.argmax()), float(agreement.max()))


def aligned_words(sentence: SentenceAttention, alignment: Tensor) -> list[tuple[int, int]]:
    """Link each target word to the source word that it attends to most.

    The weights of the tokens of a word are summed. A token that is part of several words counts for the last.

    Returns:
        Pairs of a source and a target word, counted from 0, in the order of the target; words are separated
        by spaces in ``sentence.source`` and ``sentence.target``.
    """
    src, tgt = _membership(sentence.src_tokens), _membership(sentence.tgt_tokens)
    if not src.numel() or not tgt.numel():
        return []
    weights, best = (tgt @ alignment @ src.T).max(-1)
    return [(int(best[word]), word) for word in range(len(best)) if weights[word] > 0]


def _membership(tokens: Sequence[Token]) -> Tensor:
    """``(words, tokens)``: 1 where the token is part of the word."""
    num_words = 1 + max((token.word for token in tokens if token.word is not None), default=-1)
    part_of = torch.zeros(num_words, len(tokens))
    for place, token in enumerate(tokens):
        if token.word is not None:
            part_of[token.word, place] = 1
    return part_of
