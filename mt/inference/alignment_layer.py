"""Which layer of a model aligns words.

One rule holds for every model. The candidates are the decoder's layers, each with the cross-attention of its
heads averaged. The rule chooses the layer that most often attends most to the source token on which the
prediction depends most: the token without which the probability of the target token falls furthest. This is
measured on the first sentence pairs of the run's validation split. EOS is ignored on both sides.
"""

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from mt.data.corpus import load_split
from mt.errors import ConfigError, LinesError, MtError
from mt.inference.attention import SentenceAttention, sentence_attention, source_dependence
from mt.inference.model_translator import ModelTranslator
from mt.transformer.transformer import Transformer

LOG = logging.getLogger(__name__)

# Enough for about 200 tokens, on which the layers of a trained model differ by far more than chance.
_NUM_PAIRS_MEASURED = 20


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


def aligning_layer(translator: ModelTranslator, layer: int | None = None) -> AlignmentLayer | None:
    """The decoder layer that aligns every sentence: the given one, or the one that the rule chooses.

    None if the rule needs the run's validation split, which cannot be read.
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


def _validation_pairs(translator: ModelTranslator) -> list[SentenceAttention]:
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


def choose_layer(translator: ModelTranslator, sentences: Iterable[SentenceAttention]) -> AlignmentLayer:
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
