"""BLEU as computed in papers on Multi30k: lower-cased, with normalised punctuation, tokenised by Moses."""

from dataclasses import replace

import sacremoses  # type: ignore[import-untyped]
from sacrebleu.metrics.bleu import BLEU

from mt.display import visible
from mt.evaluation.record import Score
from mt.evaluation.scores import Texts, score_with_confidence


def literature_tokens(lines: Texts, language: str) -> list[str]:
    """The lines after the Moses scripts lowercase, normalize-punctuation and tokenizer.

    For a language that Moses does not support, apostrophes are split off, and English abbreviations are used.
    """
    normalizer = sacremoses.MosesPunctNormalizer(language, penn=True)
    tokenizer = sacremoses.MosesTokenizer(language)
    return [
        tokenizer.tokenize(normalizer.normalize(line.lower()), escape=True, return_str=True) for line in lines
    ]


def literature_score(hypotheses: Texts, references: Texts, language: str) -> Score:
    """BLEU of the texts after `literature_tokens`, with each token as a word.

    It is not comparable with BLEU of the original text, and must not be printed without its name.
    """
    # `force`: sacreBLEU warns about lines that end in " .", as all of these do.
    metric = BLEU(tokenize="none", force=True)
    tokenized = literature_tokens(hypotheses, language), literature_tokens(references, language)
    (score,) = score_with_confidence(*tokenized, {"bleu": metric}).values()
    # sacreBLEU does not know about the preprocessing, and its own signature would say that case matters.
    before = f"before:lowercase+normalize-punctuation+tokenize|lang:{visible(language)}"
    signature = f"{score.signature}|{before}|sacremoses:{sacremoses.__version__}"
    return replace(score, name="literature BLEU", signature=signature)
