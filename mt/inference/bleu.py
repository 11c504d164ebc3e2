"""BLEU, with the words that the script of the references has: for evaluating, and for verifying engines."""

from collections.abc import Sequence
from typing import Literal

from sacrebleu.metrics.bleu import BLEU

from mt.data.unsegmented_scripts import LETTER, NO_HAN, is_unsegmented


def bleu_tokenizer(references: Sequence[str]) -> Literal["13a", "zh", "char"]:
    """The sacreBLEU tokenizer for these references; the others for ``char``'s languages need dictionaries."""
    if not is_unsegmented(references):
        return "13a"
    text = "\n".join(references)
    return "char" if 10 * len(NO_HAN.findall(text)) > len(LETTER.findall(text)) else "zh"


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU, as `mt evaluate` computes it."""
    metric = BLEU(tokenize=bleu_tokenizer(references))
    return float(metric.corpus_score([*hypotheses], [[*references]]).score)
