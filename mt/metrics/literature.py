"""Scores as papers on Multi30k compute them: lower-cased, punctuation normalised, Moses-tokenised BLEU."""

from collections.abc import Sequence
from dataclasses import replace

import sacremoses  # type: ignore[import-untyped]
from sacrebleu.metrics.bleu import BLEU

from mt.metrics.scores import Score
from mt.metrics.significance import score_with_confidence


def literature_tokens(lines: Sequence[str], language: str) -> list[str]:
    """The lines as Moses' scripts lowercase, normalize-punctuation and tokenizer leave them.

    A language that Moses has no rules for is treated as English.
    """
    normalizer = sacremoses.MosesPunctNormalizer(language, penn=True)
    tokenizer = sacremoses.MosesTokenizer(language)
    return [
        tokenizer.tokenize(normalizer.normalize(line.lower()), escape=True, return_str=True) for line in lines
    ]


def literature_score(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Score:
    """BLEU of the texts treated so, each token one word.

    Not to be compared with BLEU of the texts as they are, nor printed without saying which it is.
    """
    # `force`: sacreBLEU warns of lines that end in " .", which all of these do.
    metric = BLEU(tokenize="none", force=True)
    tokenized = literature_tokens(hypotheses, language), literature_tokens(references, language)
    (score,) = score_with_confidence(*tokenized, {"bleu": metric}).values()
    # sacreBLEU knows nothing of what was done before: alone its signature would claim that case counts.
    before = f"before:lowercase+normalize-punctuation+tokenize|sacremoses:{sacremoses.__version__}"
    return replace(score, name="literature BLEU", signature=f"{score.signature}|{before}")
