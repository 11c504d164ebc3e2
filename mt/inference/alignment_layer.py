"""Which layer of a model aligns words.

The candidates are the decoder's layers, each with the cross-attention of its heads averaged. Chosen is the
layer that most often attends most to the source token on which the prediction depends most: the token without
which the probability of the target token falls furthest. This is measured on the first sentence pairs of the
run's validation split. EOS is ignored on both sides.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from mt.config.config import Config
from mt.data.corpus import load_split
from mt.errors import ConfigError, MtError
from mt.inference.attention import SentenceAttention, is_recordable, sentence_attention, source_dependence
from mt.inference.model_translator import ModelTranslator

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
    """The given decoder layer, or the one of the rule; None if that needs a corpus that is missing."""
    if layer is not None:
        num_layers = translator.config.model.num_decoder_layers
        if not 0 <= layer < num_layers:
            raise ConfigError(
                f"there is no decoder layer {layer + 1}: this model has {num_layers}, counted from 1."
            )
        return AlignmentLayer(layer, None)
    pairs = validation_pairs(translator.config, 10 * _NUM_PAIRS_MEASURED)
    pairs = [pair for pair in pairs if is_recordable(translator, *pair)][:_NUM_PAIRS_MEASURED]
    if not pairs:
        return None
    return choose_layer(translator, sentence_attention(translator, *zip(*pairs, strict=True)))


def validation_pairs(config: Config, most: int) -> list[tuple[str, str]]:
    """The first pairs of the validation split that have text on both sides; none if it cannot be read."""
    try:
        # With the cleaning of the run, or a cached corpus would not be found.
        rows = load_split(config.data, "validation", config.cleaning)
    except MtError as error:
        LOG.info("the validation split is missing: %s", error)
        return []
    pairs = ((row["src"], row["tgt"]) for row in rows)
    return list(islice((pair for pair in pairs if all(map(str.strip, pair))), most))


def choose_layer(translator: ModelTranslator, sentences: Iterable[SentenceAttention]) -> AlignmentLayer:
    """Choose the layer by the rule of this module on these sentences; if equally good, the lowest one."""
    hits = []
    num_tokens = 0
    for sentence in sentences:
        if sentence.src_ids and sentence.tgt_ids:
            dependence = source_dependence(
                translator.attending_model, sentence.src_ids, sentence.tgt_ids, translator.device
            )
            attended = sentence.cross.mean(1)[:, :-1, :-1].argmax(-1)
            hits.append((attended == dependence.argmax(-1)).sum(-1))
            num_tokens += len(sentence.tgt_ids)
    if not hits:
        return AlignmentLayer(0, None)
    agreement = torch.stack(hits).sum(0) / num_tokens
    return AlignmentLayer(int(agreement.argmax()), float(agreement.max()))
