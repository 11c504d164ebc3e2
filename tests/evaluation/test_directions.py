"""A run of several directions is scored in each of them, one at a time."""

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import sacrebleu

from mt.config.load import load_config
from mt.errors import ConfigError, DataError
from mt.evaluation.compare import run_comparison
from mt.evaluation.evaluate import run_evaluation
from mt.evaluation.literature import literature_score
from mt.evaluation.record import mean_scores, read_evaluations
from mt.evaluation.test_set import load_evaluation_set
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory
from mt.sides import Sides

BACK = Sides("de", "en")


def lines_of(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def test_each_direction_is_translated_and_scored_with_its_own_languages(
    several: RunDirectory, tiny_corpus: Path
) -> None:
    results = []
    for src, tgt in (("en", "de"), BACK):
        result = run_evaluation(several, tgt=tgt, device="cpu", literature=literature_score)
        sources, references = (lines_of(tiny_corpus / f"test.{side}") for side in (src, tgt))
        hypotheses = lines_of(result.hypotheses_file)
        translator = Translator.from_run(several, device="cpu", precision="float32", tgt=tgt)
        assert hypotheses == translator.translate(sources)
        assert result.scores["bleu"].value == sacrebleu.corpus_bleu(hypotheses, [references]).score
        assert f"|lang:{tgt}|" in result.scores["literature_bleu"].signature
        assert result.hypotheses_file.name.startswith(f"hypotheses.test-{src}-{tgt}-")
        assert result.data == f"{tiny_corpus}, {src} to {tgt}, test"
        results.append(result)
    mean = mean_scores(results)["ter"]
    assert mean.value == fmean(result.scores["ter"].value for result in results)
    assert str(mean) == f"TER {mean.value:.2f}  (mean of en to de, de to en)"
    assert [one.direction for one in read_evaluations(several)] == ["en to de", "de to en"]


@pytest.mark.parametrize("asked", [{}, {"tgt": "fr"}, {"src": "en"}, {"src": "de", "tgt": "loud"}])
def test_what_leaves_no_direction_or_several_is_refused_with_the_list(
    several: RunDirectory, asked: dict[str, Any]
) -> None:
    known = "translates en to de, de to en, en to loud: choose one by --to"
    with pytest.raises(ConfigError, match=known):
        run_evaluation(several, **asked)
    with pytest.raises(ConfigError, match=known):
        run_comparison([several.path, several.path], **asked)


def test_a_direction_without_the_split_is_refused(
    several: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt.evaluation.test_set.sets_of_sources", lambda *_: {})
    config = load_config(several.config_file)
    assert load_evaluation_set(config, "test").direction == ("en", "de")
    with pytest.raises(DataError, match="no source has a test split for de to en: give another corpus"):
        load_evaluation_set(config, "test", direction=BACK)


def test_other_data_is_read_with_the_languages_of_the_direction(
    several: RunDirectory, tmp_path: Path
) -> None:
    config = load_config(several.config_file)
    table = tmp_path / "news.tsv"
    table.write_text("en\tde\nGo.\tGeh.\n", encoding="utf-8")
    back = load_evaluation_set(config, "test", path=str(table), direction=BACK)
    assert (back.sources, back.references, back.where) == (["Geh."], ["Go."], f"{table}, de to en")
    assert back.name.startswith("news.tsv-de-en-")


def test_a_run_of_one_direction_is_compared_in_that_of_another_run(
    several: RunDirectory, trained: RunDirectory, tiny_corpus: Path
) -> None:
    # The first run says what is translated.
    result = run_comparison([trained.path, several.path], device="cpu")
    sources = lines_of(tiny_corpus / "test.en")
    translator = Translator.from_run(several, device="cpu", precision="float32", tgt="de")
    assert lines_of(Path(result.systems[1])) == translator.translate(sources)
    assert translator.translate(sources) != translator.into("loud").translate(sources)
    with pytest.raises(ConfigError, match="tiny does not translate de to en, only en to de"):
        run_comparison([several.path, trained.path], tgt="en", device="cpu")
    assert not list(several.path.glob("hypotheses.*de-en*"))
