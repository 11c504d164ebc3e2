"""`mt init --student-of`: a small, fast model for what a larger one writes; and `mt check` of such a run."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.load import load_config
from mt.errors import ConfigError
from mt.preflight import student
from mt.preflight.check import Section, preflight
from mt.preflight.init import Proposal
from mt.preflight.student import propose_student
from mt.preflight.trial import Sample
from mt.run_directory import RunDirectory
from tests.fixture_types import MakeConfig

pytestmark = pytest.mark.usefixtures("steps_of_a_tenth_of_a_second")


@pytest.fixture
def data(tiny_corpus: Path) -> DataConfig:
    return DataConfig(path=str(tiny_corpus), src="en", tgt="de")


def config_of(proposal: Proposal, tmp_path: Path) -> Config:
    file = tmp_path / "student.yaml"
    file.write_text(proposal.yaml)
    return load_config(file)


def test_it_is_as_wide_as_its_speed_permits(
    trained: RunDirectory, data: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[tuple[int, int, int]] = []

    def seconds(config: Config, sample: Sample) -> float:
        model = config.model
        timed.append((model.num_encoder_layers, model.num_decoder_layers, model.d_model))
        # The teacher has one layer of width 32.
        return model.d_model / 64 if model.d_model > 32 else 5.0

    monkeypatch.setattr(student, "_search_seconds", seconds)
    proposal = propose_student(str(trained.path), data, 0.5)
    config = config_of(proposal, tmp_path)
    model = config.model
    assert timed[0] == (1, 1, 32)
    assert model.num_decoder_layers == 1
    assert (model.d_model, model.num_heads, model.d_ff) == (128, 2, 512)
    assert config.data.write_tgt is not None
    assert (config.data.write_tgt.run, config.data.write_tgt.beam) == (str(trained.path), 5)
    assert config.training.guided_alignment > 0
    assert config.training.max_minutes == 0.5
    comment = re.sub(r"\n# ", " ", proposal.yaml.split("\n\n")[0])
    assert "speed 2.5 times that of the teacher's shape (1 + 1 layers of width 32), greedy, timed" in comment
    assert re.search(r"writing 0\.\d of these minutes: 160 targets, with a beam of 5, ", comment)
    assert len(timed) == len({*timed})


def test_an_engine_is_timed(trained: RunDirectory, data: DataConfig, tmp_path: Path) -> None:
    proposal = propose_student(str(trained.path), data, 0.5)
    assert re.search(r"# speed \d+\.\d times", proposal.yaml)
    assert config_of(proposal, tmp_path).model.num_decoder_layers == 1


def test_too_few_minutes_and_several_directions_are_refused(
    trained: RunDirectory, data: DataConfig, several: RunDirectory
) -> None:
    with pytest.raises(ConfigError, match=r"writing the targets alone takes 0\.\d minutes: give more"):
        propose_student(str(trained.path), data, 1e-6)
    with pytest.raises(ConfigError, match="a student has one direction: name it with --src and --tgt"):
        propose_student(str(several.path), load_config(several.config_file).data, 1)


def test_a_check_writes_some_lines_and_says_how_long_the_rest_takes(
    make_config: MakeConfig, trained: RunDirectory, tmp_path: Path
) -> None:
    sections: list[Section] = []
    run = RunDirectory(tmp_path / "new")
    preflight(make_config(f"data.write_tgt.run={trained.path}"), run, sections.append)
    [shown] = [section for section in sections if section.name == "writing"]
    assert re.fullmatch(rf"00:0\d for 160 lines, data\.write_tgt by {trained.path}", shown.summary)
    assert ("Anna paints a house!", "Anna malt ein Haus!") in shown.details or len(shown.details) == 3
    assert not run.path.exists()


def test_the_widest_and_then_the_deepest_that_is_twice_as_fast_is_taken(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds = {(5, 1, 256): 1.27, (3, 1, 256): 1.63, (5, 1, 192): 1.89, (3, 1, 192): 2.37}

    def seconds(config: Config, sample: Sample) -> float:
        model = config.model
        return 1 / speeds.get((model.num_encoder_layers, model.num_decoder_layers, model.d_model), 1.0)

    monkeypatch.setattr(student, "_search_seconds", seconds)
    sample: Any = SimpleNamespace(config=make_config())
    usual = make_config("model.d_model=256", "model.num_encoder_layers=3", "model.num_decoder_layers=3").model
    fast = student.Student(usual, num_lines=10, line_seconds=0.1)
    chosen = fast.shape(usual, sample)
    assert (chosen.num_encoder_layers, chosen.num_decoder_layers, chosen.d_model) == (3, 1, 192)
    assert "speed    2.4 times that of the teacher's shape (3 + 3 layers of width 256)" in fast.summary[1]
    speeds[5, 1, 256] = 2.0
    assert student.Student(usual, 10, 0.1).shape(usual, sample).num_encoder_layers == 5
