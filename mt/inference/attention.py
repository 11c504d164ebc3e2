"""Records what a model attends to while it translates a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mt.data.batches.batch import Batch, collate
from mt.errors import LinesError
from mt.inference.labels import Labelled, Token, label_read, label_written
from mt.inference.model_translator import ModelTranslator
from mt.inference.score import label_log_probs
from mt.inference.segments import Translation, copied_words
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


@torch.inference_mode()
def sentence_attention(
    translator: ModelTranslator,
    sources: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    strategy: Strategy = None,
    first_line: int = 1,
) -> list[SentenceAttention]:
    """Record what a model, not an ensemble, attends to in each sentence and its translation.

    For a target that is None, the model finds a translation with ``strategy``. An empty source has only EOS.
    """
    _plain_model(translator)  # Before the search, which takes longer.
    if targets is None:
        found = translator.n_best(
            sources, strategy=strategy, refuse_long=True, join_lines=True, first_line=first_line
        )
        pairs = [
            _found(translator, source, best, line)
            for line, (source, [best]) in enumerate(zip(sources, found, strict=True), first_line)
        ]
    else:
        pairs = _forced(translator, sources, targets, first_line)
    return _recorded(translator, pairs, first_line)


@torch.inference_mode()
def found_attention(
    translator: ModelTranslator, source: str, translations: Sequence[Translation]
) -> list[SentenceAttention]:
    """Record what a model attends to in translations of a sentence that it has found itself."""
    return _recorded(translator, [_found(translator, source, each, 1) for each in translations])


def _plain_model(translator: ModelTranslator) -> Transformer:
    model = translator.plain_model
    if not isinstance(model, Transformer):
        raise TypeError("attention is recorded for a single model in float32, not for an ensemble")
    return model


def _recorded(
    translator: ModelTranslator, pairs: Sequence[tuple[Labelled, Labelled]], first_line: int = 1
) -> list[SentenceAttention]:
    model = _plain_model(translator)
    return [
        SentenceAttention(
            line,
            src.text,
            tgt.text,
            src.tokens,
            tgt.tokens,
            src.ids,
            tgt.ids,
            *record_pair(model, src.ids, tgt.ids, translator.device),
        )
        for line, (src, tgt) in enumerate(pairs, first_line)
    ]


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

    This does not use attention weights: each source token in turn is hidden from all attention, and the
    others keep their positions (prediction difference, Li et al. 2019). The result is ``(T - 1, S - 1)`` nats
    on the CPU, without EOS on either side; the ids have neither BOS nor EOS.
    """
    num_src, num_tgt = len(src_ids), len(tgt_ids)
    batch = collate([src_ids], [tgt_ids]).to(device)
    with_all = label_log_probs(model, batch)
    width = max(1, _MOST_LOGITS // (model.output.out_features * (num_tgt + 1)))
    without_one = ~torch.eye(num_src, num_src + 1, dtype=torch.bool, device=device)
    rows = [label_log_probs(model, _masked(batch, part)) for part in torch.split(without_one, width)]
    return (with_all - torch.cat(rows))[:, :num_tgt].T.cpu()


def _masked(batch: Batch, visible: Tensor) -> Batch:
    """A batch of one pair, repeated for each row of ``visible`` ``(N, S)``, the tokens to attend to."""
    return replace(batch.repeated(len(visible)), src_mask=visible[:, None, None, :])


def _found(
    translator: ModelTranslator, source: str, best: Translation, line: int
) -> tuple[Labelled, Labelled]:
    reader, tgt_tokenizer = translator.reader, translator.tgt_tokenizer
    if not best.parts:
        return label_read(reader, ""), label_written(tgt_tokenizer, [], [])
    if len(best.parts) > 1:
        raise _in_parts(line)
    [(segment, hypothesis)] = best.parts
    # A translation that was cut at the model's limit makes room for the EOS that all tokens end with.
    ids = hypothesis.ids[: translator.max_length - 1]
    return (
        label_read(reader, source),
        label_written(tgt_tokenizer, ids, copied_words(segment, hypothesis)),
    )


def _in_parts(line: int) -> LinesError:
    reason = (
        f"line {line} is too long to be read as a whole, so it has no single attention map. "
        "Put each of its sentences on a separate line."
    )
    return LinesError({line: reason})


def check_recordable(
    translator: ModelTranslator, sources: Sequence[str], targets: Sequence[str] | None, *, first_line: int
) -> None:
    """Check that sentences, and their translations if given, are short enough for `sentence_attention`."""
    if targets is not None:
        _forced(translator, sources, targets, first_line)
        return
    for segment in translator.read(sources, first_line=first_line, refuse_long=True):
        if segment.number > 0:
            raise _in_parts(segment.line)


def is_recordable(translator: ModelTranslator, source: str, target: str) -> bool:
    """Whether a sentence and its translation are short enough for `sentence_attention`."""
    try:
        _forced(translator, [source], [target])
    except LinesError:
        return False
    return True


def _forced(
    translator: ModelTranslator, sources: Sequence[str], targets: Sequence[str], first_line: int = 1
) -> list[tuple[Labelled, Labelled]]:
    """Read given translations like sources, so that a copied word is a single UNK on both sides."""
    pairs = [
        (label_read(translator.reader, source), label_read(translator.tgt_reader, target))
        for source, target in zip(sources, targets, strict=True)
    ]
    for line, pair in enumerate(pairs, first_line):
        for name, side in zip(("source", "translation"), pair, strict=True):
            translator.refuse_long(line, name, len(side.tokens))
    return pairs
