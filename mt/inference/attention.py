"""Records what a model attends to while it translates a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mt.data.batches.batch import collate
from mt.errors import LinesError
from mt.inference.labels import Labelled, Token, label_read, label_written
from mt.inference.model_translator import ModelTranslator
from mt.inference.score import label_log_probs
from mt.inference.segments import Translation
from mt.search.strategy import Strategy
from mt.special_tokens import BOS
from mt.transformer.recording import recording_attention
from mt.transformer.transformer import Transformer

# Logits of 64 MB in float32.
_MOST_LOGITS = 2**24


@dataclass(frozen=True)
class SentenceAttention:
    """A sentence, its translation, and the weights of every attention of one teacher-forced pass over both.

    L is the number of layers of the encoder or decoder, S that of source tokens and T that of target tokens,
    both with EOS. Row t of the decoder is the position that *predicts* target token t: its input is the
    preceding token.
    """

    line: int
    """The number of its line."""
    source: str
    """The source as the model reads it; its words are separated by spaces."""
    target: str
    src_tokens: Sequence[Token]
    """S tokens, the last one EOS: rows and columns of ``encoder_self``, columns of ``cross``."""
    tgt_tokens: Sequence[Token]
    """T tokens, the last one EOS: rows of ``decoder_self`` and ``cross``."""
    src_ids: Sequence[int]
    """The ids of the source without EOS."""
    tgt_ids: Sequence[int]
    """The ids of the target without BOS and EOS."""
    encoder_self: Tensor
    """``(L, H, S, S)`` float32 on the CPU, like the others."""
    decoder_self: Tensor
    """``(L, H, T, T)``; nothing above the diagonal."""
    cross: Tensor
    """``(L, H, T, S)``."""

    @property
    def tgt_inputs(self) -> list[Token]:
        """The decoder's input: BOS and all target tokens except EOS, the columns of ``decoder_self``."""
        return [Token(BOS, None), *self.tgt_tokens[:-1]]


def sentence_attention(
    translator: ModelTranslator,
    sources: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    strategy: Strategy = None,
    first_line: int = 1,
) -> list[SentenceAttention]:
    """Record what a model, not an ensemble, attends to in each sentence and its translation.

    Without ``targets``, the model finds the translations with ``strategy``. An empty source has only EOS.
    """
    if targets is None:
        check_recordable(translator, sources, None, first_line=first_line)
        best = translator.n_best(sources, strategy=strategy, join_lines=True, first_line=first_line)
        return [
            recorded
            for line, (source, translations) in enumerate(zip(sources, best, strict=True), first_line)
            for recorded in found_attention(translator, source, translations, line=line)
        ]
    pairs = check_recordable(translator, sources, targets, first_line=first_line)
    return [_recorded(translator, *pair, line) for line, pair in enumerate(pairs, first_line)]


def found_attention(
    translator: ModelTranslator, source: str, translations: Sequence[Translation], *, line: int = 1
) -> list[SentenceAttention]:
    """Record what a model attends to in translations of a sentence that it has found itself."""
    read = label_read(translator.reader, source)
    return [
        _recorded(translator, read, label_written(translator.tgt_tokenizer, *written), line)
        for written in (_written(translation, translator.max_length) for translation in translations)
    ]


def _written(translation: Translation, max_length: int) -> tuple[Sequence[int], Sequence[str]]:
    if not translation.parts:
        return [], []
    [(segment, hypothesis)] = translation.parts
    # A translation that was cut at the model's limit makes room for the EOS that all tokens end with.
    return hypothesis.ids[: max_length - 1], segment.copied_words(hypothesis)


def _recorded(translator: ModelTranslator, src: Labelled, tgt: Labelled, line: int) -> SentenceAttention:
    recorded = record_pair(translator.attending_model, src.ids, tgt.ids, translator.device)
    return SentenceAttention(line, src.text, tgt.text, src.tokens, tgt.tokens, src.ids, tgt.ids, *recorded)


@torch.inference_mode()
def record_pair(
    model: Transformer, src_ids: Sequence[int], tgt_ids: Sequence[int], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of the encoder, of the decoder over the target, and of the decoder over the source.

    ``(L, H, S, S)``, ``(L, H, T, T)`` and ``(L, H, T, S)`` on the CPU. The model is in evaluation mode; the
    ids have neither BOS nor EOS.
    """
    batch = collate([src_ids], [tgt_ids]).to(device)
    with recording_attention(model) as recorded:
        memory = model.encode(batch.src_ids, batch.src_mask)
        model.decode(batch.tgt_ids, memory, batch.src_mask, batch.tgt_mask)

    def stacked(layers: list[list[Tensor]]) -> Tensor:
        return torch.stack([weights[0] for [weights] in layers]).cpu()

    return stacked(recorded.encoder_self), stacked(recorded.decoder_self), stacked(recorded.cross)


@torch.inference_mode()
def source_dependence(
    model: Transformer, src_ids: Sequence[int], tgt_ids: Sequence[int], device: torch.device
) -> Tensor:
    """Measure by how much each target token loses probability when a source token is masked out.

    The others keep their positions (prediction difference, Li et al. 2019). The result is
    ``(T - 1, S - 1)`` nats on the CPU, without EOS on either side; the ids have neither BOS nor EOS.
    """
    num_src, num_tgt = len(src_ids), len(tgt_ids)
    batch = collate([src_ids], [tgt_ids]).to(device)
    with_all = label_log_probs(model, batch)
    width = max(1, _MOST_LOGITS // (model.output.out_features * (num_tgt + 1)))
    without_one = ~torch.eye(num_src, num_src + 1, dtype=torch.bool, device=device)
    rows = [
        label_log_probs(model, replace(batch.repeated(len(part)), src_mask=part[:, None, None, :]))
        for part in torch.split(without_one, width)
    ]
    return (with_all - torch.cat(rows))[:, :num_tgt].T.cpu()


def check_recordable(
    translator: ModelTranslator, sources: Sequence[str], targets: Sequence[str] | None, *, first_line: int = 1
) -> list[tuple[Labelled, Labelled]]:
    """Check that sentences, and their translations if given, are short enough for `sentence_attention`.

    Given translations are read like sources, so that a copied word is a single UNK on both sides.
    """
    pairs = [
        (label_read(translator.reader, source), label_read(translator.tgt_reader, target))
        for source, target in zip(sources, targets or [""] * len(sources), strict=True)
    ]
    for line, pair in enumerate(pairs, first_line):
        for name, side in zip(("source", "translation"), pair, strict=True):
            translator.refuse_long(line, name, len(side.tokens))
    return pairs


def is_recordable(translator: ModelTranslator, source: str, target: str) -> bool:
    """Whether a sentence and its translation are short enough for `sentence_attention`."""
    try:
        check_recordable(translator, [source], [target])
    except LinesError:
        return False
    return True
