"""The scores are sacreBLEU's, of the very file that is left."""

import json
import shutil
from pathlib import Path
from typing import Any, Literal
from unittest.mock import Mock

import pytest
import sacrebleu
import torch

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.load import load_config
from mt.config.training import TrainingConfig
from mt.data.text_form import TextForm
from mt.errors import DataError
from mt.evaluation.compare import run_comparison
from mt.evaluation.evaluate import Evaluation, run_evaluation, setting_name
from mt.evaluation.record import read_evaluations
from mt.evaluation.scores import in_form
from mt.evaluation.test_set import load_evaluation_set
from mt.inference.loaded_model import load_model
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam
from mt.training.run import run_training
from tests.fixture_types import MakeConfig

CPU = torch.device("cpu")


@pytest.mark.parametrize("split", ["validation", "test", "train"])
def test_scores_are_those_of_the_file_that_is_written(
    split: Literal["validation", "test", "train"], trained: RunDirectory, tiny_corpus: Path
) -> None:
    """How each score is computed, and that a file is its only source: tests/cli/test_evaluate_command.py."""
    result = run_evaluation(trained, split=split, checkpoint="step_0000100", device=CPU)
    (file,) = trained.path.glob(f"hypotheses.{split}-*.step_0000100.greedy.txt")
    assert result.hypotheses_file == file
    hypotheses = result.hypotheses_file.read_text(encoding="utf-8").split("\n")[:-1]
    references = (tiny_corpus / f"{split}.de").read_text(encoding="utf-8").split("\n")[:-1]
    assert result.num_sentences == len(hypotheses) == len(references)
    assert result.scores["bleu"].value == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert result.exact > 0


def test_both_sides_are_scored_in_the_form_of_the_training_text(
    trained: RunDirectory, tiny_corpus: Path, tmp_path: Path
) -> None:
    plain = run_evaluation(trained, split="test", device=CPU)
    other, system = Path(shutil.copytree(tiny_corpus, tmp_path / "other")), trained.path / "system.txt"
    text = (other / "test.de").read_text().replace("ie", "i\u00ade")
    for file in (other / "test.de", system):
        file.write_text(text, encoding="utf-8")
    count = sum("\u00ad" in line for line in text.splitlines())
    scored = run_evaluation(trained, split="test", device=CPU, data_path=str(other))
    assert (plain.num_rewritten, scored.num_rewritten) == (0, count)
    assert f"{count} references" in scored.how
    assert scored.scores == plain.scores
    texts = [path.read_text().splitlines() for path in (scored.hypotheses_file, scored.references_file)]
    assert sacrebleu.corpus_bleu(texts[0], [texts[1]]).score == scored.scores["bleu"].value
    # A file of another system's translations is compared in the same form.
    found = run_comparison([trained.path, system], split="test", device=CPU, data_path=str(other))
    assert (found.scores["chrfpp"][1].score.value, found.num_rewritten) == (100, count)
    # What was escaped twice is learnt, and written, as if it had been escaped once.
    form, twice = TextForm(unescape_html=True), ["&amp;quot;A&amp;quot;"]
    assert in_form(form, form.rewrite(twice)) == in_form(form, twice) == ['"A"']


def test_every_line_of_another_corpus_is_scored(
    trained: RunDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # An empty line, one of several sentences, and a sentence that is three times too long.
    other = tmp_path / "other"
    other.mkdir()
    sources = ["Anna sees milk.", "", "Anna sees milk. " * 9, "the car " * 20]
    for split in ("train", "validation", "test"):
        (other / f"{split}.en").write_text("".join(line + "\n" for line in sources))
        (other / f"{split}.de").write_text("Anna sieht Milch.\n" * len(sources))
    result = run_evaluation(trained, split="test", checkpoint="best", device=CPU, data_path=str(other))
    assert result.data == f"{other}, test"
    assert result.hypotheses_file.name.startswith("hypotheses.other.test-")
    hypotheses = result.hypotheses_file.read_text(encoding="utf-8").split("\n")[:-1]
    assert result.num_sentences == len(hypotheses) == 4
    assert hypotheses[:2] == ["Anna sieht Milch.", ""]
    assert "sentences in 1 line are longer than the 16 tokens that this model reads" in caplog.text
    assert hypotheses[2].count("Milch") == 9


def test_an_ensemble_is_scored_apart_from_its_first_run(
    trained: RunDirectory, make_config: MakeConfig, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "short")
    run_training(make_config("training.max_steps=3", "training.seed=2"), run)

    def evaluate(*others: RunDirectory) -> Evaluation:
        return run_evaluation(run, checkpoint="latest", device=CPU, analyse=False, others=others)

    alone, together = evaluate(), evaluate(trained)
    translator = ModelTranslator.from_run(run, checkpoint="latest", device=CPU, others=[trained])
    sources = load_evaluation_set(load_config(run.config_file), "test").sources
    lines = together.hypotheses_file.read_text(encoding="utf-8").split("\n")[:-1]
    assert lines == translator.translate(sources)
    assert together.scores["bleu"].value > alone.scores["bleu"].value
    assert together.ensemble == [str(trained.checkpoints_dir / "step_0000200")]
    # Another member, and another number of members, have another file.
    files = {each.hypotheses_file for each in (alone, together, evaluate(run), evaluate(run, trained))}
    assert len(files) == 4
    # Only the run's own scores are recorded.
    assert [each.setting for each in read_evaluations(run)] == [alone.setting]
    assert read_evaluations(trained) == []


def test_translations_of_another_setting_are_never_overwritten(trained: RunDirectory, tmp_path: Path) -> None:
    for folder, text in (("a", "Anna sees milk."), ("b", "the dog sees milk.")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "news.jsonl").write_text(json.dumps({"en": text, "de": "Anna sieht Milch."}))
    settings: list[dict[str, Any]] = [
        {"checkpoint": "step_0000100"},
        {"checkpoint": "step_0000200"},
        *({"beam": beam} for beam in (Beam(2, 1.0), Beam(2, 0.6), Beam(2, 1.0, "mean"))),
        *({"data_path": str(tmp_path / folder / "news.jsonl")} for folder in "ab"),
    ]
    files = [
        run_evaluation(trained, device=CPU, analyse=False, **setting).hypotheses_file for setting in settings
    ]
    assert len(set(files)) == len(settings)
    loaded, engine = load_model(trained, "step_0000100"), Mock(precision="int8")
    engine.name = "ctranslate2"
    setting = setting_name([loaded], load_evaluation_set(loaded.config, "test"), Beam(2, 0.5, "mean"), engine)
    assert setting.endswith(".step_0000100.beam2-lp0.5-mean-int8-ctranslate2")


def a_config(data: DataConfig) -> Config:
    return Config(data=data, training=TrainingConfig(max_steps=1))


def test_without_the_training_corpus_there_are_scores_but_leaks_are_not_counted(
    trained: RunDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = trained.config_file.read_text()
    path = next(line for line in text.splitlines() if line.startswith("  path:"))
    trained.config_file.write_text(text.replace(path, f"  path: {tmp_path / 'gone'}"))
    file = tmp_path / "news.jsonl"
    file.write_text('{"en": "Anna sees milk.", "de": "Anna sieht Milch."}\n')
    result = run_evaluation(trained, split="test", checkpoint="best", device=CPU, data_path=str(file))
    assert result.analysis is not None
    assert "are not counted: data.path: there is no file or folder" in caplog.text


@pytest.mark.parametrize("columns", ["1,2", "english,german", None])
def test_another_corpus_with_other_columns_is_read_by_the_names_of_the_languages(
    tmp_path: Path, columns: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    config = a_config(DataConfig(path="gone", src="en", tgt="de", columns=columns, delimiter="pipe"))
    table, neither = tmp_path / "more.csv", tmp_path / "neither.jsonl"
    table.write_text("de,en\nGeh.,Go.\n", encoding="utf-8")
    found = load_evaluation_set(config, "test", path=str(table))
    assert (found.sources, found.references) == (["Go."], ["Geh."])
    assert (
        f"{table} cannot be read with the run's data.columns and data.delimiter: its columns" in caplog.text
    )
    neither.write_text('{"fr": "Va."}\n', encoding="utf-8")
    with pytest.raises(DataError, match=f"columns? .*{(columns or 'en').split(',')[0]}"):
        load_evaluation_set(config, "test", path=str(neither))


def test_a_file_without_splits_is_not_called_a_split_and_its_form_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "my test (1).tsv"
    other.write_text("en\tde\nGo.\tGeh.\nStop.\t<seg>Halt.</seg>\n", encoding="utf-8")
    # How many pairs the run trained on says nothing about another file.
    config = a_config(DataConfig(path="gone", src="en", tgt="de", num_train_pairs=1))
    found = load_evaluation_set(config, "test", path=str(other))
    assert found.where == str(other)
    assert found.name.startswith("my-test-1-.tsv-")
    assert found.sources == ["Go.", "Stop."]
    assert "25% of the lines of the evaluated split are each in a tag" in caplog.text


def test_pairs_without_a_reference_are_refused(tmp_path: Path) -> None:
    rows = [("Go.", ""), ("a well-\nknown man", "ein wohl-\nbekannter Mann"), ("Stop.", " ")]
    file = tmp_path / "test.jsonl"
    file.write_text("".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in rows))
    config = a_config(DataConfig(path="gone", src="en", tgt="de"))
    with pytest.raises(DataError, match="sentence 1, and 1 more: the reference is empty"):
        load_evaluation_set(config, "test", path=str(file))
