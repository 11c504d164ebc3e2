"""What a run was trained on says nothing about it: such test sets are reported."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from mt.config.load import load_config
from mt.evaluation.compare import run_comparison
from mt.evaluation.evaluate import run_evaluation
from mt.evaluation.test_set import load_evaluation_set, warn_of_leaks
from mt.run_directory import RunDirectory

CPU = torch.device("cpu")


def test_a_corpus_that_has_changed_since_training_is_reported(
    trained: RunDirectory, tiny_corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_evaluation(trained, device=CPU)
    assert "was trained with another" not in caplog.text
    corpus = Path(shutil.copytree(tiny_corpus, tmp_path / "corpus"))
    for side in ("en", "de"):
        train, test = (
            (corpus / f"{split}.{side}").read_text("utf-8").splitlines() for split in ("train", "test")
        )
        train[0], test[0] = test[0], train[0]
        for split, lines in (("train", train), ("test", test)):
            (corpus / f"{split}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    text = trained.config_file.read_text(encoding="utf-8")
    trained.config_file.write_text(text.replace(str(tiny_corpus), str(corpus)), encoding="utf-8")
    run_evaluation(trained, device=CPU)
    assert f"{trained.path} was trained with another test split than this one" in caplog.text
    caplog.clear()
    other = RunDirectory(Path(shutil.copytree(trained.path, tmp_path / "other")))
    run_comparison((trained.path, other.path), split="test", checkpoint="best", device=CPU)
    of_comparison = caplog.text
    caplog.clear()
    run_evaluation(trained, device=CPU, others=[other], analyse=False)
    for run in (trained, other):
        for text in (of_comparison, caplog.text):
            assert f"{run.path} was trained with another test split" in text


def test_scored_pairs_that_are_in_the_training_data_are_counted(
    trained: RunDirectory, tiny_corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Copied under another name, and one of them written in another way.
    src, tgt = ((tiny_corpus / f"train.{side}").read_text("utf-8").splitlines()[:2] for side in ("en", "de"))
    pairs = [(src[0], tgt[0]), (src[1].upper(), tgt[1].upper()), ("quite another", "etwas ganz anderes")]
    file = tmp_path / "copy.jsonl"
    file.write_text("".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in pairs), encoding="utf-8")
    config = load_config(trained.config_file)
    test_set = load_evaluation_set(config, "test", path=str(file))
    warn_of_leaks(test_set, config)
    assert f"also in the training data: 2 of the 3 pairs of {file}" in caplog.text
    caplog.clear()
    own = load_evaluation_set(config, "train")
    warn_of_leaks(own, config)
    assert "also in the training data" not in caplog.text
