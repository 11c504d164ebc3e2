"""The literature's way against figures and rules that are not ours."""

from collections.abc import Callable
from typing import Any

import pytest

from mt.evaluation.literature import literature_score, literature_tokens

HYPOTHESES = ["Ein Mann, der läuft.", "Das „alte“ Haus & ein Hund.", "Es ist z.B. gut!"]
REFERENCES = ["Ein Mann der läuft.", "Das „alte“ Haus & ein Hund.", "Es ist z.B. sehr gut!"]


def test_text_is_treated_as_moses_scripts_do() -> None:
    # By hand, after normalize-punctuation.perl -penn and tokenizer.perl of Moses.
    assert literature_tokens(HYPOTHESES, "de") == [
        "ein mann , der läuft .",
        "das &quot; alte &quot; haus &amp; ein hund .",
        "es ist z.b. gut !",
    ]


def test_the_score_equals_the_command_line(command_line: Callable[..., dict[str, dict[str, Any]]]) -> None:
    tokens = literature_tokens(HYPOTHESES, "de"), literature_tokens(REFERENCES, "de")
    expected = command_line(*tokens, "--tokenize", "none", "--force", "--confidence", "-w", "10")["BLEU"]
    score = literature_score(HYPOTHESES, REFERENCES, "de")
    assert score.value == pytest.approx(expected["score"], abs=1e-9)
    assert score.signature.startswith(expected["signature"] + "|before:lowercase+")
    assert (score.name, "|lang:de|" in score.signature) == ("literature BLEU", True)
    assert score.interval is not None
    mean, half = expected["confidence_mean"], expected["confidence_var"]
    assert score.interval == pytest.approx((mean - half, mean + half), abs=1e-4)
