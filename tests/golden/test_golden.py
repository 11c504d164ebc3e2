"""Runs of each format that is read translate as they did when they were made, and go on."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from mt.checkpoint.record import FORMAT_VERSION
from mt.checkpoint.store import CheckpointStore
from mt.config.load import load_config
from mt.data.batches.batch import collate
from mt.inference.loaded_model import load_model
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.training.loss import Objective
from mt.training.run import run_training

GOLDEN = Path(__file__).parent
ALL = sorted(GOLDEN.glob("format_*"))
INTERRUPTED = [path for path in ALL if path.name.endswith("_interrupted")]
FORMATS = [path for path in ALL if path not in INTERRUPTED]
CPU = torch.device("cpu")


@pytest.fixture
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a golden folder: ``run``, ``corpus`` and ``translations.json``."""
    return Path(shutil.copytree(request.param, tmp_path / "golden"))


def each(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("golden", paths, ids=lambda path: path.name, indirect=True)


def test_every_format_has_golden_runs() -> None:
    formats = [f"format_{n}" for n in range(2, FORMAT_VERSION + 1)]
    assert [path.name for path in FORMATS] == formats
    assert [path.name for path in INTERRUPTED] == [f"{name}_interrupted" for name in formats]


@each(ALL)
def test_it_translates_as_it_did(golden: Path) -> None:
    expected = json.loads((golden / "translations.json").read_text(encoding="utf-8"))
    translator = ModelTranslator.from_run(RunDirectory(golden / "run"), checkpoint="latest", device=CPU)
    assert translator.translate(list(expected)) == list(expected.values())
    # It has learnt its language, so that no rounding decides about a word.
    references = (golden / "corpus" / "test.de").read_text(encoding="utf-8").splitlines()
    assert list(expected.values())[: len(references)] == references


@each(FORMATS)
def test_it_computes_the_loss_that_it_had(golden: Path) -> None:
    # Translations alone would not show a formula that has changed by a little.
    trained = load_model(RunDirectory(golden / "run"), "latest")
    src, tgt = (
        tokenizer.encode_batch((golden / "corpus" / file).read_text(encoding="utf-8").splitlines())
        for tokenizer, file in (
            (trained.src_tokenizer, "validation.en"),
            (trained.tgt_tokenizer, "validation.de"),
        )
    )
    batch = collate(src, tgt)
    with torch.no_grad():
        loss = float(Objective(trained.model.eval())(batch, 0.0)) / batch.num_target_tokens
    (record,) = (golden / "run").rglob("checkpoint.json")
    assert loss == pytest.approx(json.loads(record.read_text())["metrics"]["loss"], rel=1e-5)


@each(FORMATS)
def test_training_continues(golden: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "mt")
    run = RunDirectory(golden / "run")
    begun_with = load_config(run.config_file)
    more = [f"data.path={golden / 'corpus'}", "training.max_steps=603", "validation.every_steps=603"]
    outcome = run_training(load_config(run.config_file, more), run)
    assert outcome.finished == "training.max_steps (603) reached"
    assert outcome.counters.num_target_tokens > 0
    assert begun_with.training.max_steps == 600
    assert "from step 600" in caplog.text
    # What was learnt is still there.
    assert outcome.counters.best_value == pytest.approx(100.0)


@each(INTERRUPTED)
def test_training_continues_from_the_middle_of_an_epoch(
    golden: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "mt")
    run = RunDirectory(golden / "run")
    more = [f"data.path={golden / 'corpus'}", "training.max_steps=620", "checkpoint.keep=2"]
    outcome = run_training(load_config(run.config_file, more), run)
    assert outcome.finished == "training.max_steps (620) reached"
    assert "from step 605" in caplog.text
    # Nine steps of three batches make an epoch; seven of epoch 67 were still to be taken.
    assert (outcome.counters.epoch, outcome.counters.batch) == (68, 8 * 3)
    assert CheckpointStore(run.checkpoints_dir).names() == ["step_0000605", "step_0000620"]
    # With the moments and the average of before, nothing is unlearnt.
    assert outcome.counters.best_value == pytest.approx(100.0)
    assert outcome.counters.average_loss < 1.0
    # Where the new one is lost, the old one is gone on from again.
    shutil.rmtree(run.checkpoints_dir / "step_0000620")
    assert run_training(load_config(run.config_file, more), run).counters.step == 620
    assert caplog.text.count("from step 605") == 2
