"""`mt init --init-from`: configs that adapt a run to other data, or train it further."""

import json
import re
import shutil
from pathlib import Path

import pytest

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.load import load_config
from mt.data.prepare import load_tokenizers
from mt.preflight.adapt import propose_adaptation
from mt.run_directory import RunDirectory
from mt.special_tokens import UNK_ID
from mt.training.run import run_training


@pytest.fixture
def new_corpus(tiny_corpus: Path, tmp_path: Path) -> DataConfig:
    folder = Path(shutil.copytree(tiny_corpus, tmp_path / "next month"))
    for language, line in (("en", "the owl sees a lynx.\n"), ("de", "die Eule sieht einen Luchs.\n")):
        (folder / f"train.{language}").write_text(40 * line)
    return DataConfig(path=str(folder), src="en", tgt="de")


def proposed(
    tmp_path: Path, run: RunDirectory, data: DataConfig | None = None, minutes: float | None = 0.5
) -> tuple[Config, str]:
    trained = load_config(run.config_file)
    old, origin = trained.data, trained.init_from.model_copy(update={"run": str(run.path)})
    proposal = propose_adaptation(origin, data or old, minutes)
    names = "from passes steps unknown warning warning"
    assert [line.split()[0] for line in proposal.summary] == names.split()
    assert proposal.summary[0].startswith(f"from     {run.path}@step_0000")
    file = tmp_path / "adapted.yaml"
    file.write_text(proposal.yaml)
    return load_config(file), proposal.yaml


def test_the_stages_of_the_old_run_are_not_those_of_the_new_one(
    trained: RunDirectory, tmp_path: Path
) -> None:
    text = trained.config_file.read_text()
    trained.config_file.write_text(text.replace("  stages: {}", "  stages: {whole: {steps: 200}}"))
    assert load_config(trained.config_file).training.stages
    assert proposed(tmp_path, trained)[0].training.stages == {}


def test_new_data_is_mixed_with_the_old_which_is_scored_too(
    trained: RunDirectory, new_corpus: DataConfig, tmp_path: Path, tiny_corpus: Path
) -> None:
    config, text = proposed(tmp_path, trained, new_corpus)
    # Half of what is shown: 40 new pairs, and 40 of the 160 old ones.
    old = config.data.sources["old"]
    assert (old.path, old.weight, old.src, old.tgt) == (str(tiny_corpus), 0.25, None, None)
    assert config.tokenizer.extend
    rate = load_config(trained.config_file).schedule.learning_rate
    assert config.schedule.learning_rate == 0.25 * rate
    comment, body = text.split("\n\n", 1)
    comment = comment.replace("\n# ", " ")
    assert "model:\n" in text
    found = [key for key in (" checkpoint: step_", " dropout:", "d_model:", "sha256:") if key in body]
    assert found == [" checkpoint: step_", " dropout:"]
    assert "50% of the pairs that are shown are old ones (data.sources.old: 160 with weight 0.25)" in comment
    assert "in the held-out text after adding those of the new text" in comment
    assert f" learning rate of {rate / 4:g} instead of {rate:.2g}" in comment
    assert "This budget is a proposal." not in comment
    short = config.model_copy(update={"training": config.training.model_copy(update={"max_steps": 1})})
    run_training(short, tmp_path / "adapted")
    tokenizer, _ = load_tokenizers(RunDirectory(tmp_path / "adapted"))
    assert UNK_ID not in tokenizer.encode("the owl sees a lynx.")
    assert "bleu_on_old" in (tmp_path / "adapted" / "metrics.jsonl").read_text()


def test_the_same_data_trains_further(trained: RunDirectory, tmp_path: Path) -> None:
    # It was trained on a GPU, and is not adapted there; nor does it end as it did.
    text = trained.config_file.read_text()
    text = text.replace("precision: float32", "precision: fp16").replace("compile: false", "compile: true")
    text = text.replace("patience: null", "patience: 3").replace("max_epochs: null", "max_epochs: 50")
    text = text.replace("muon: false", "muon: true").replace("guided_alignment: 0.0", "guided_alignment: 0.1")
    text = text.replace("lexicon_start: false", "lexicon_start: true")
    trained.config_file.write_text(text)
    config, text = proposed(tmp_path, trained, minutes=None)
    assert "This budget is a proposal." in text
    assert "after adding" not in text
    assert (config.training.muon, config.training.lexicon_start) == (False, False)
    assert config.training.batch_tokens <= load_config(trained.config_file).training.batch_tokens
    assert (config.validation.patience, config.training.max_epochs) == (None, None)
    assert config.training.limits
    assert (config.data.sources, config.tokenizer.extend) == ({}, False)
    assert config.data.path == load_config(trained.config_file).data.path
    assert (config.training.precision, config.training.compile) == ("mixed", "auto")


def test_without_the_old_data_nothing_is_mixed_in(
    trained: RunDirectory, new_corpus: DataConfig, tmp_path: Path
) -> None:
    text = trained.config_file.read_text()
    old = load_config(trained.config_file).data.path
    trained.config_file.write_text(text.replace(old, str(tmp_path / "gone")))
    config, text = proposed(tmp_path, trained, new_corpus)
    assert config.data.sources == {}
    assert "may forget" in text


def test_a_run_gets_a_further_direction(trained: RunDirectory, tiny_corpus: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_corpus, tmp_path / "further"))
    for file in folder.glob("*.de"):
        # A language of the same words, spelt otherwise.
        text = re.sub(r"\w+", lambda word: word[0].lower() + "o", file.read_text(encoding="utf-8"))
        file.with_suffix(".it").write_text(text, encoding="utf-8")
    old = load_config(trained.config_file)
    config, _ = proposed(tmp_path, trained, DataConfig(path=str(folder), src="en", tgt="it"))
    assert config.data.directions == [("en", "it"), ("en", "de")]
    assert (config.data.sources["old"].path, config.data.temperature) == (str(tiny_corpus), 1)
    assert config.data.held_out_fraction == old.data.held_out_fraction
    assert config.validation.over == "all"
    steps = "training.max_steps=100", "schedule.kind=constant", "schedule.warmup_steps=10"
    rate = f"schedule.learning_rate={old.schedule.learning_rate}"
    run = RunDirectory(tmp_path / "runs" / "further")
    run_training(load_config(tmp_path / "adapted.yaml", [*steps, rate]), run)
    before, after = (load_tokenizers(each).src for each in (trained, run))
    entries = [after.library.id_to_token(number) for number in range(after.size)]
    assert entries[: before.size] == [before.library.id_to_token(number) for number in range(before.size)]
    assert entries[-2:] == ["<to:it>", "<to:de>"]
    scores = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])
    assert min(scores["bleu"], scores["bleu_on_old"]) > 60
    # What is known of several directions stays when another one is added.
    config, text = proposed(tmp_path, run, DataConfig(path=str(tiny_corpus), src="de", tgt="en"))
    assert config.data.directions == [("de", "en"), ("en", "it"), ("en", "de")]
    assert "(data.sources.old, old-old: 320 with weight 0.5)" in text.replace("\n# ", " ")


def test_the_reverse_of_the_old_data_needs_no_second_copy_of_it(
    trained: RunDirectory, tmp_path: Path
) -> None:
    path = load_config(trained.config_file).data.path
    back = {"path": path, "src": "de", "tgt": "en"}
    keys = {"path": path, "src": "en", "tgt": "de", "sources": {"de-en": back}, "temperature": 5}
    config, text = proposed(tmp_path, trained, DataConfig.model_validate(keys))
    assert "# The old data is part of the new." in text
    assert [*config.data.sources] == ["de-en"]
