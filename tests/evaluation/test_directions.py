"""A run of several directions is scored in each of them; where one is expected, it has to be chosen."""

from pathlib import Path
from statistics import fmean

import pytest
import sacrebleu

from mt.config.load import load_config
from mt.errors import ConfigError, DataError
from mt.evaluation.compare import run_comparison
from mt.evaluation.evaluate import evaluate_directions, run_evaluation
from mt.evaluation.literature import literature_score
from mt.evaluation.record import mean_scores, read_evaluations
from mt.evaluation.test_set import load_evaluation_sets
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory


def lines_of(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def test_each_direction_is_translated_and_scored_with_its_own_languages(
    several: RunDirectory, tiny_corpus: Path
) -> None:
    results = evaluate_directions(several, device="cpu", literature=literature_score)
    assert [result.direction for result in results] == ["en to de", "de to en", "en to loud"]
    for result in results[:2]:
        sources, references = (lines_of(tiny_corpus / f"test.{side}") for side in (result.src, result.tgt))
        hypotheses = lines_of(result.hypotheses_file)
        translator = Translator.from_run(several, device="cpu", precision="float32", tgt=result.tgt)
        assert hypotheses == translator.translate(sources)
        assert result.scores["bleu"].value == sacrebleu.corpus_bleu(hypotheses, [references]).score
        assert f"|lang:{result.tgt}|" in result.scores["literature_bleu"].signature
        assert result.hypotheses_file.name.startswith(f"hypotheses.test-{result.src}-{result.tgt}-")
        assert result.data == f"{tiny_corpus}, {result.direction}, test"
    assert mean_scores(results)["ter"] == fmean(result.scores["ter"].value for result in results)
    recorded = [(one.src, one.tgt, one.split) for one in read_evaluations(several)]
    assert recorded == [("en", "de", "test"), ("de", "en", "test"), ("en", "loud", "test")]


def test_one_direction_is_chosen_where_one_is_expected(several: RunDirectory, tiny_corpus: Path) -> None:
    known = "translates en to de, de to en, en to loud: choose one by --to"
    with pytest.raises(ConfigError, match=known):
        run_evaluation(several)
    with pytest.raises(ConfigError, match=known):
        evaluate_directions(several, data_path=str(tiny_corpus))
    with pytest.raises(ConfigError, match=known):
        run_comparison([several.path, several.path])
    with pytest.raises(ConfigError, match="from de into loud, only en to de, de to en, en to loud"):
        run_evaluation(several, src="de", tgt="loud")
    assert run_evaluation(several, tgt="loud", device="cpu").tgt == "loud"


def test_a_direction_without_the_split_is_left_out(
    several: RunDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mt.evaluation.test_set.sets_of_sources", lambda *_: {})
    config = load_config(several.config_file)
    [own] = load_evaluation_sets(config, "test")
    assert own.direction == ("en", "de")
    assert "no source has a test split for de to en, en to loud: not evaluated" in caplog.text
    with pytest.raises(DataError, match="no source has a test split for en to loud: give another corpus"):
        load_evaluation_sets(config, "test", tgt="loud")


def test_training_pairs_are_those_of_the_direction_and_other_data_is_read_with_its_languages(
    several: RunDirectory, tiny_corpus: Path, tmp_path: Path
) -> None:
    config = load_config(several.config_file)
    sets = load_evaluation_sets(config, "train")
    assert [len(one.sources) for one in sets] == [160] * 3
    assert [one.sources[0] for one in sets[:2]] == [
        lines_of(tiny_corpus / f"train.{s}")[0] for s in ("en", "de")
    ]
    table = tmp_path / "news.tsv"
    table.write_text("en\tde\nGo.\tGeh.\n", encoding="utf-8")
    [back] = load_evaluation_sets(config, "test", path=str(table), tgt="en")
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
