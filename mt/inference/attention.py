"""Records what a model attends to while it translates a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from mt.errors import LinesError
from mt.inference.labels import Labelled, Token, label_read, label_translation
from mt.inference.model_translator import ModelTranslator
from mt.search.strategy import Strategy
from mt.special_tokens import BOS


@dataclass(frozen=True)
class SentenceAttention:
    """A sentence, its translation, and the weights of every attention of one teacher-forced pass over both.

    L is the number of layers of the encoder or decoder, S that of source tokens and T that of target tokens,
    both with EOS. Row t of the decoder is the position that *predicts* target token t: its input is the
    preceding token.
    """

    line: int
    """The number of its line."""
    src: Labelled
    """The source as the model reads it: rows and columns of ``encoder_self``, columns of ``cross``."""
    tgt: Labelled
    """The translation: rows of ``decoder_self`` and ``cross``."""
    encoder_self: Tensor
    """``(L, H, S, S)`` float32 on the CPU, like the others."""
    decoder_self: Tensor
    """``(L, H, T, T)``; nothing above the diagonal."""
    cross: Tensor
    """``(L, H, T, S)``."""

    @property
    def tgt_inputs(self) -> list[Token]:
        """The decoder's input: BOS and all target tokens except EOS, the columns of ``decoder_self``."""
        return [Token(BOS, None), *self.tgt.tokens[:-1]]


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
    pairs = check_recordable(translator, sources, targets, first_line=first_line)
    if targets is None:
        best = translator.n_best(sources, strategy=strategy, join_lines=True, first_line=first_line)
        most = translator.facts.max_length
        written = (label_translation(translator.tgt_tokenizer, found, most) for [found] in best)
        pairs = [(src, tgt) for (src, _), tgt in zip(pairs, written, strict=True)]
    return [
        SentenceAttention(line, src, tgt, *translator.engine.record(src.ids, tgt.ids))
        for line, (src, tgt) in enumerate(pairs, first_line)
    ]


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
