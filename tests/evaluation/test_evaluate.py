"""The scores are sacreBLEU's, of the very file that is left."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
from sacrebleu.dataset import DATASETS

from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.config.data import CleaningConfig, DataConfig
from mt.config.load import load_config
from mt.config.training import TrainingConfig
from mt.data.sources import find
from mt.data.sources.source import Split
from mt.errors import ConfigError, DataError
from mt.evaluation import test_set as evaluation_set
from mt.evaluation.evaluate import Evaluation, run_evaluation, show_in_tensorboard
from mt.evaluation.record import read_evaluations
from mt.evaluation.scores import Score
from mt.evaluation.test_set import load_evaluation_set
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam
from mt.training.run import run_training

CPU = torch.device("cpu")


@pytest.mark.parametrize("split", ["validation", "test", "train"])
def test_scores_are_those_of_the_file_that_is_written(
    split: Split, trained: RunDirectory, tiny_corpus: Path
) -> None:
    result = run_evaluation(trained, split=split, checkpoint="step_0000100", device=CPU)
    (file,) = trained.path.glob(f"hypotheses.{split}-*.step_0000100.greedy.txt")
    assert result.hypotheses_file == file
    hypotheses = result.hypotheses_file.read_text(encoding="utf-8").split("\n")[:-1]
    references = (tiny_corpus / f"{split}.de").read_text(encoding="utf-8").split("\n")[:-1]
    assert result.num_sentences == len(hypotheses) == len(references)
    metrics = {"bleu": sacrebleu.BLEU(), "chrfpp": sacrebleu.CHRF(word_order=2), "ter": sacrebleu.TER()}
    assert list(result.scores) == list(metrics)
    for key, metric in metrics.items():
        expected = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
        assert result.scores[key].value == expected.score
        assert result.scores[key].signature == str(metric.get_signature())
    num_exact = sum(map(str.__eq__, hypotheses, references))
    assert result.exact == pytest.approx(100 * num_exact / len(references))
    assert num_exact > 0
    assert result.exact_by_length is None


def test_every_line_of_another_corpus_is_scored(trained: RunDirectory, tmp_path: Path) -> None:
    # An empty line, one of several sentences, and a sentence that is three times too long.
    other = tmp_path / "other"
    other.mkdir()
    sources = ["Anna sees milk.", "", "Anna sees milk. " * 9, "the car " * 20]
    for split in ("train", "validation", "test"):
        (other / f"{split}.en").write_text("".join(line + "\n" for line in sources))
        (other / f"{split}.de").write_text("Anna sieht Milch.\n" * len(sources))
    result = run_evaluation(trained, split="test", checkpoint="best", device=CPU, data_path=str(other))
    hypotheses = result.hypotheses_file.read_text(encoding="utf-8").split("\n")[:-1]
    assert result.num_sentences == len(hypotheses) == 4
    assert hypotheses[:2] == ["Anna sieht Milch.", ""]
    assert hypotheses[2].count("Milch") == 9


def test_a_corpus_of_one_file_is_scored_whole(trained: RunDirectory, tmp_path: Path) -> None:
    file = tmp_path / "news.jsonl"
    file.write_text('{"en": "Anna sees milk.", "de": "Anna sieht Milch."}\n' * 30)
    result = run_evaluation(trained, split="test", checkpoint="best", device=CPU, data_path=str(file))
    assert result.num_sentences == 30


def test_reversing_is_scored_by_length(
    make_config: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"train": 50, "validation": 5, "test": 40}
    monkeypatch.setitem(find.NUM_PAIRS, find.REVERSE, sizes)
    run = RunDirectory(tmp_path)
    run_training(make_config("data.path=builtin:reverse", "data.max_length=32", "training.max_steps=1"), run)
    result = run_evaluation(run, split="test", checkpoint="latest", device=CPU)
    assert result.exact_by_length is not None
    assert list(result.exact_by_length) == sorted(result.exact_by_length)
    assert set(result.exact_by_length) <= set(range(4, 17))
    assert sum(count for count, _ in result.exact_by_length.values()) == result.num_sentences == 40
    by_hand = sum(count * exact for count, exact in result.exact_by_length.values()) / 40
    assert result.exact == pytest.approx(by_hand)


def test_an_ensemble_is_scored_apart_from_its_first_run(
    trained: RunDirectory, make_config: Callable[..., Config], tmp_path: Path
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
    # Only the run's own scores are recorded, and only those are compared with another checkpoint's.
    assert [each.setting for each in read_evaluations(run)] == [alone.setting]
    assert read_evaluations(trained) == []
    assert evaluate().other_checkpoints == []


def test_an_additional_score_is_of_the_same_lines_in_the_target_language_and_recorded(
    trained: RunDirectory,
) -> None:
    asked: list[tuple[list[str], list[str], str]] = []

    def score(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Score:
        asked.append((list(hypotheses), list(references), language))
        return Score("literature BLEU", 12.5, "made up")

    result = run_evaluation(trained, device=CPU, analyse=False, literature=score)
    hypotheses, references = (
        file.read_text(encoding="utf-8").split("\n")[:-1]
        for file in (result.hypotheses_file, result.references_file)
    )
    assert asked == [(hypotheses, references, "de")]
    [recorded] = read_evaluations(trained)
    assert recorded.scores["literature_bleu"] == result.literature


def test_a_missing_corpus_is_refused_and_nothing_is_written(trained: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file or folder"):
        run_evaluation(trained, split="test", checkpoint="best", device=CPU, data_path=str(tmp_path / "no"))
    assert not list(trained.path.glob("hypotheses.*"))


def test_translations_of_another_setting_are_never_overwritten(trained: RunDirectory, tmp_path: Path) -> None:
    texts = {"a": "Anna sees milk.", "b": "the dog sees milk."}
    for folder, text in texts.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "news.jsonl").write_text(json.dumps({"en": text, "de": "Anna sieht Milch."}))
    files = [
        run_evaluation(
            trained,
            split="test",
            checkpoint=checkpoint,
            device=CPU,
            beam=beam,
            data_path=None if folder is None else str(tmp_path / folder / "news.jsonl"),
            analyse=False,
        ).hypotheses_file
        for checkpoint in ("step_0000100", "step_0000200")
        for beam in (None, Beam(2, 1.0), Beam(2, 0.6), Beam(2, 1.0, "mean"))
        for folder in (None, "a", "b")
    ]
    assert len(set(files)) == 2 * 4 * 3
    again = run_evaluation(trained, split="test", checkpoint="latest", device=CPU, analyse=False)
    assert again.hypotheses_file in files
    assert again.checkpoint == "step_0000200"


def test_two_averages_of_the_same_name_are_two_settings(trained: RunDirectory) -> None:
    store = CheckpointStore(trained.checkpoints_dir)
    middle, last = (store.require(name) for name in ("step_0000150", "step_0000200"))
    files = []
    for averaged in ([middle, last], [store.require("step_0000100"), last]):
        name = store.save_average(averaged).name
        result = run_evaluation(trained, split="test", checkpoint=name, device=CPU, analyse=False)
        files.append(result.hypotheses_file)
    assert all(".average_0000200-of2" in file.name for file in files)
    assert files[0] != files[1]


def a_config(data: DataConfig) -> Config:
    return Config(data=data, training=TrainingConfig(max_steps=1))


def test_all_pairs_of_another_corpus_are_scored(trained: RunDirectory, tiny_corpus: Path) -> None:
    config = load_config(trained.config_file)
    config = config.model_copy(update={"data": config.data.model_copy(update={"num_train_pairs": 2})})
    assert len(load_evaluation_set(config, "train").sources) == 2
    lines = (tiny_corpus / "train.en").read_text(encoding="utf-8").splitlines()
    assert len(load_evaluation_set(config, "train", path=str(tiny_corpus)).sources) == len(lines)
    assert len(load_evaluation_set(config, "train", path="builtin:primer").sources) == 2


def test_a_standard_test_set(
    trained: RunDirectory, tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wmt14: Any = DATASETS["wmt14"]
    monkeypatch.setattr(wmt14, "_outdir", str(tmp_path))
    for field in wmt14.fieldnames("en-de"):
        text = (tiny_corpus / f"test.{'en' if field == 'src' else 'de'}").read_text(encoding="utf-8")
        Path(wmt14._get_txt_file_path("en-de", field)).write_text(text, encoding="utf-8")
    own = run_evaluation(trained, split="test", checkpoint="latest", device=CPU)
    result = run_evaluation(
        trained, split="test", checkpoint="latest", device=CPU, data_path="sacrebleu:wmt14"
    )
    (file,) = trained.path.glob("hypotheses.sacrebleu-wmt14-*.step_0000200.greedy.txt")
    assert result.hypotheses_file == file
    assert result.data == "sacrebleu:wmt14"
    assert result.scores == own.scores
    with pytest.raises(DataError, match="has no test set 'wmt'"):
        run_evaluation(trained, split="test", checkpoint="best", device=CPU, data_path="sacrebleu:wmt")


def test_a_name_needs_a_corpus_that_has_it(trained: RunDirectory, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"split": "test", "checkpoint": "best", "device": CPU, "data_name": "en-de"}
    with pytest.raises(ConfigError, match=r"configuration of a Hub corpus"):
        run_evaluation(trained, **arguments)
    with pytest.raises(ConfigError, match="configuration of a Hub corpus"):
        run_evaluation(trained, **arguments, data_path="sacrebleu:wmt14")


def test_the_configuration_of_a_hub_corpus_is_requested(
    trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[DataConfig] = []

    def refuse(config: DataConfig) -> None:
        asked.append(config)
        raise DataError("no network")

    monkeypatch.setattr(evaluation_set, "load_undivided", refuse)
    with pytest.raises(DataError, match="no network"):
        run_evaluation(
            trained,
            split="test",
            checkpoint="best",
            device=CPU,
            data_path="Helsinki-NLP/opus_books",
            data_name="de-en",
        )
    assert (asked[0].path, asked[0].name) == ("Helsinki-NLP/opus_books", "de-en")


def test_words_are_counted_in_the_training_split(trained: RunDirectory, tiny_corpus: Path) -> None:
    analysis = run_evaluation(trained, split="test", checkpoint="best", device=CPU).analysis
    assert analysis is not None
    training = (
        (tiny_corpus / "train.en").read_text(encoding="utf-8").replace(".", " ").replace("!", " ").split()
    )
    test = (tiny_corpus / "test.en").read_text(encoding="utf-8").replace(".", " ").replace("!", " ").split()
    assert analysis.source_words.num_words == len(test)
    assert analysis.source_words.num_unknown == sum(word not in training for word in test) == 1
    assert analysis.by_training_frequency is not None
    (unseen,) = [each for each in analysis.by_training_frequency if each.training_frequency == "0"]
    # das Zebra, of which "das" stands before the car as well.
    assert unseen.num_reference_words == 1


def test_without_the_training_corpus_there_are_scores_but_no_word_frequencies(
    trained: RunDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = trained.config_file.read_text()
    path = next(line for line in text.splitlines() if line.startswith("  path:"))
    trained.config_file.write_text(text.replace(path, f"  path: {tmp_path / 'gone'}"))
    file = tmp_path / "news.jsonl"
    file.write_text('{"en": "Anna sees milk.", "de": "Anna sieht Milch."}\n')
    result = run_evaluation(trained, split="test", checkpoint="best", device=CPU, data_path=str(file))
    assert result.analysis is not None
    assert result.analysis.by_training_frequency is None
    assert result.analysis.source_words.num_unknown is None
    assert "need the training corpus and are left out: data.path: there is no file or folder" in caplog.text


def test_tensorboard_shows_scores_and_the_training_curves_are_unchanged(
    trained: RunDirectory, read_curves: Callable[[Path], dict[str, list[tuple[int, Any]]]]
) -> None:
    curves = read_curves(trained.tensorboard_dir)
    result = run_evaluation(trained, split="test", checkpoint="step_0000100", device=CPU)
    # The second replaces the first.
    for _ in range(2):
        show_in_tensorboard(result, trained)
    shown = read_curves(trained.evaluation_dir(result.setting))
    assert {tag for tag in shown if "/text_summary" not in tag} == {
        f"evaluation/{name}" for name in ("bleu", "chrfpp", "ter", "exact", "length_ratio")
    }
    assert shown["evaluation/bleu"] == [(100, pytest.approx(result.scores["bleu"].value, rel=1e-6))]
    table = shown["evaluation/worst/text_summary"][0][1].decode()
    assert table.startswith("| sentence | chrF2++ | source | translation | reference |\n| --- |")
    assert table.count("\n") == 1 + len(result.worst)
    assert (
        result.scores["ter"].signature.split("|")[0] in shown["evaluation/scores/text_summary"][0][1].decode()
    )
    assert read_curves(trained.tensorboard_dir) == curves


def test_another_corpus_is_read_with_the_columns_of_the_run(tmp_path: Path) -> None:
    data = DataConfig(path="gone", src="en", tgt="de", columns="2,1", delimiter="pipe")
    (tmp_path / "more.txt").write_text("Geh.|Go.\n", encoding="utf-8")
    found = load_evaluation_set(a_config(data), "test", path=str(tmp_path / "more.txt"))
    assert (found.sources, found.references) == (["Go."], ["Geh."])


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


def test_a_file_without_splits_is_not_called_a_split(tmp_path: Path) -> None:
    own, other = tmp_path / "own.tsv", tmp_path / "other.tsv"
    for file in (own, other):
        file.write_text("en\tde\nGo.\tGeh.\nStop.\tHalt.\n", encoding="utf-8")
    for name in ("x.en", "y.de"):
        (tmp_path / name).write_text("Go.\n", encoding="utf-8")
    config = a_config(DataConfig(path=f"{tmp_path}/x.en,{tmp_path}/y.de", mix=str(own), src="en", tgt="de"))
    found = load_evaluation_set(config, "test", path=str(other))
    assert found.where == str(other)
    assert found.name.startswith("other.tsv-")
    assert found.sources == ["Go.", "Stop."]
    # The run has learnt from all of its own files, by whatever path.
    (tmp_path / "link.tsv").symlink_to(own)
    for path in ("own.tsv", f"../{tmp_path.name}/own.tsv", "o*.tsv", "link.tsv", "x.en,{}/./y.de"):
        with pytest.raises(ConfigError, match="this run was trained on"):
            load_evaluation_set(config, "train", path=f"{tmp_path}/{path.format(tmp_path)}")


def test_the_training_files_of_a_folder_are_refused_and_the_others_are_not(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        for side in ("en", "de"):
            (tmp_path / f"{split}.{side}").write_text("Go.\nStop.\n", encoding="utf-8")
    config = a_config(DataConfig(path=str(tmp_path), src="en", tgt="de"))
    for name in ("train", "train.{en,de}", "t*.de"):
        with pytest.raises(ConfigError, match="this run was trained on"):
            load_evaluation_set(config, "test", path=f"{tmp_path}/{name}")
    assert load_evaluation_set(config, "test", path=f"{tmp_path}/validation").sources == ["Go.", "Stop."]
    # The corpus of the run may be gone.
    for side in ("en", "de"):
        (tmp_path / f"train.{side}").unlink()
    assert load_evaluation_set(config, "test", path=f"{tmp_path}/validation").sources == ["Go.", "Stop."]


def test_the_training_split_is_the_cleaned_one(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for split, lines in (("train", ["Go.", "A long sentence."]), ("validation", ["Go."]), ("test", ["Go."])):
        for side in ("en", "de"):
            (corpus / f"{split}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    data = DataConfig(path=str(corpus), src="en", tgt="de")
    config = a_config(data).model_copy(update={"cleaning": CleaningConfig(max_characters=5)})
    assert load_evaluation_set(config, "train").sources == ["Go."]


def test_references_are_those_of_the_file_that_is_written(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"en": "a well-\nknown man", "de": "ein wohl-\nbekannter Mann"}))
    config = a_config(DataConfig(path="gone", src="en", tgt="de"))
    found = load_evaluation_set(config, "test", path=str(pairs))
    assert found.references == ["ein wohl- bekannter Mann"]


def test_pairs_without_a_reference_are_refused_or_left_out(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("en\tde\nGo.\t\nStop.\tHalt.\n", encoding="utf-8")
    config, path = a_config(DataConfig(path="gone", src="en", tgt="de")), str(tmp_path / "test.tsv")
    with pytest.raises(DataError, match="sentence 1: the reference is empty"):
        load_evaluation_set(config, "test", path=path)
    found = load_evaluation_set(config, "test", path=path, leave_out_empty=True)
    assert (found.sources, found.references) == (["Stop."], ["Halt."])
