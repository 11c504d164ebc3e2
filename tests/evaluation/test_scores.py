"""Scores against sacreBLEU's own functions."""

import pytest
import sacrebleu

from mt.errors import DataError
from mt.evaluation.record import Score
from mt.evaluation.scores import SCORE_NAMES, exact_match, metrics_of_evaluation, score_by, score_translations

HYPOTHESES = ["Der Hund läuft schnell über die Straße.", "Das ist gut!", "Ein Mann liest ein altes Buch ."]
REFERENCES = ["Der Hund rennt schnell über die Straße.", "Das ist gut!", "Ein Mann liest ein altes Buch."]


def test_scores_equal_those_of_sacrebleu() -> None:
    scores = score_translations(HYPOTHESES, REFERENCES)
    assert list(scores) == ["bleu", "chrf"]
    assert {key: score.name for key, score in scores.items()} == SCORE_NAMES
    assert scores["bleu"].value == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores["chrf"].value == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    # An empty translation is scored, and not dropped.
    with_empty = ["", *HYPOTHESES[1:]]
    expected = sacrebleu.corpus_bleu(with_empty, [REFERENCES]).score
    assert score_translations(with_empty, REFERENCES)["bleu"].value == expected < scores["bleu"].value < 100


def test_no_score_is_printed_without_its_signature() -> None:
    scores = score_translations(HYPOTHESES, REFERENCES)
    version = sacrebleu.__version__
    bleu = f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    chrf = f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"
    assert scores["bleu"].signature == bleu
    assert scores["chrf"].signature == chrf
    assert str(scores["bleu"]) == f"BLEU {scores['bleu'].value:.2f}  ({bleu})"
    assert str(Score("TER", 43.217, "sig", (41.0, 45.555))) == "TER 43.22  [41.00, 45.55]  (sig)"
    assert str(scores["chrf"]) == f"chrF2 {scores['chrf'].value:.2f}  ({chrf})"


CHINESE = ["他是一个好人。", "我们在北京学习机器翻译。", "今天天气很好,对吗?"]
NEARLY = ["他是一个好人。", "我们在北京学习翻译。", "今天天气很好,是吗?"]
THAI, NEARLY_THAI = ["ฉันรักหมาของฉันมาก", "วันนี้อากาศดี"], ["ฉันรักแมวของฉันมาก", "วันนี้อากาศดี"]
JAPANESE, NEARLY_JAPANESE = ["私は毎日日本語を勉強します。"], ["私は毎日英語を勉強します。"]


@pytest.mark.parametrize(
    ("hypotheses", "references", "tokenizer"),
    [
        (NEARLY, CHINESE, "zh"),
        (NEARLY_THAI, THAI, "char"),
        (NEARLY_JAPANESE, JAPANESE, "char"),
        # A name in another script does not make a text one of it.
        (["Er sagt 你好 zu ihm heute."], ["Er sagte 你好 zu ihm heute."], "13a"),
        (["我用 PyTorch 学习机器翻译。"], ["我用 PyTorch 研究机器翻译。"], "zh"),
        (["12 + 3 = 15"], ["12 + 3 = 15"], "13a"),
        # Most of the letters are Latin, but a Latin word has several of them.
        (
            ["使用 Dockerfile 创建 container image 并推送到 registry。"],
            ["使用 Dockerfile 构建 container image 并推送到 registry。"],
            "zh",
        ),
        (["image を Docker で実行します。"], ["container を Docker で実行します。"], "char"),
        (["你好 means hello in Chinese"], ["你好 means hello in the Chinese"], "13a"),
    ],
)
def test_words_are_split_as_the_script_needs_it(
    hypotheses: list[str], references: list[str], tokenizer: str
) -> None:
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize=tokenizer)
    for bleu in (
        score_translations(hypotheses, references)["bleu"],
        score_by(metrics_of_evaluation(references)["bleu"], hypotheses, references),
    ):
        assert bleu.value == expected.score > 10
        assert f"|tok:{tokenizer}|" in bleu.signature
    ter = score_by(metrics_of_evaluation(references)["ter"], hypotheses, references)
    assert ter.value <= 50
    assert ("asian:yes" in ter.signature) == (tokenizer != "13a")


def test_exact_match_is_a_share_in_percent() -> None:
    assert exact_match(["a b", "c", "d", "e"], ["a b", "c", "D", "E"]) == 50.0
    # As in files: translations have single spaces, references any.
    assert exact_match(["a b", "c", "d e"], ["a\u00a0b ", "c", "d\r\ne"]) == 100.0
    assert exact_match(["a b"], ["ab"]) == 0.0
    assert exact_match(["a"], ["a"]) == 100.0
    with pytest.raises(ValueError, match="longer"):
        exact_match(["a"], ["a", "b"])


def test_as_many_translations_as_references_are_needed() -> None:
    for count in (0, 2):
        with pytest.raises(DataError, match=rf"^{count} translations .* 3 references"):
            score_translations(HYPOTHESES[:count], REFERENCES)
    with pytest.raises(DataError, match="at least one"):
        score_translations([], [])
