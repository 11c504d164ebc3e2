"""A run that starts in both directions is validated in the intended one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mt.config.config import Config
from mt.run_directory import RunDirectory
from mt.training.run import run_training
from mt.training.samples import read_samples

MakeConfig = Callable[..., Config]


def test_validation_is_in_the_wanted_direction_before_and_after_the_switch(
    make_config: MakeConfig, tiny_corpus: Path, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "run")
    outcome = run_training(make_config("tokenizer.shared=true", "training.bidirectional_epochs=1"), run)
    assert outcome.counters.epoch > 1
    shown = read_samples(run.samples_file)
    assert len(shown) == 3
    src, tgt = (
        (tiny_corpus / f"validation.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de")
    )
    pairs = set(zip(src, tgt, strict=True))
    assert all((sample.source, sample.reference) in pairs for each in shown for sample in each.samples)


@pytest.mark.parametrize(("num_epochs", "is_warned"), [(9, True), (0, False), (1, False)])
def test_a_run_that_ends_in_its_bidirectional_epochs_is_warned_of_at_its_start(
    num_epochs: int,
    is_warned: bool,
    make_config: MakeConfig,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = make_config("tokenizer.shared=true", f"training.bidirectional_epochs={num_epochs}")
    run_training(config, RunDirectory(tmp_path / "run"))
    assert ("training.bidirectional_epochs (9) leaves hardly any of the run" in caplog.text) == is_warned
