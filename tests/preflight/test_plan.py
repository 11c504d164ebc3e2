"""Runs that end within a budget, at a pace that the tests choose, so that nothing depends on a clock."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import mt.data.prepare as prepare
from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.load import load_config
from mt.config.training import LEAST_TIMED
from mt.data.corpus import load_corpus
from mt.preflight import init, rule, trial
from mt.preflight.init import cost_of, propose_config
from mt.preflight.plan import FEWEST_STEPS
from mt.preflight.trial import FIXED_SECONDS, Sample, fill_device, take_sample
from mt.run_directory import RunDirectory
from mt.training.budget import Pace
from mt.training.run import run_training
from tests.fixture_types import MakeConfig

START, STEP, VALIDATION, CHECKPOINT = 10.0, 1.2, 2.0, 0.5


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configs that are timed: steps of 1,024 tokens, a tenth of them padding, take `STEP` seconds.

    Those are of the usual model; others take as long as the rule says.
    """
    configs: list[Config] = []

    def measure(sample: Sample, token_seconds: tuple[float, float] | None = None) -> Pace:
        if token_seconds is None:
            configs.append(sample.config)
            seconds = cost_of(sample) * STEP / (0.9 * 1024)
            token_seconds = seconds, seconds / 3
        tokens = sample.corpus_tokens
        num_steps = tokens / (0.9 * sample.config.training.batch_tokens)
        step = token_seconds[0] * tokens / num_steps
        return Pace(num_steps, tokens, step, VALIDATION, CHECKPOINT, START, token_seconds=token_seconds)

    monkeypatch.setattr(init, "measure", measure)
    return configs


def propose(corpus: Path, tmp_path: Path, **budget: Any) -> tuple[Config, str]:
    proposal = propose_config(DataConfig(path=str(corpus), src="en", tgt="de"), **budget)
    file = tmp_path / "proposed.yaml"
    file.write_text(proposal.yaml, encoding="utf-8")
    return load_config(file), proposal.yaml.replace("\n# ", " ") + "\n".join(proposal.summary)


def steps_in(text: str) -> int:
    return int(text.partition("steps    ")[2].split()[0].replace(",", ""))


def seconds_of(config: Config, steps: int) -> float:
    """By hand from the pace above, for a vocabulary of 30 words."""
    training = config.training
    cost = rule.relative_cost(config.model, 30) * (2 if training.r_drop else 1)
    seconds = cost * STEP * training.batch_tokens / 1024
    return START + steps * seconds + num_validations(config, steps) * (VALIDATION + CHECKPOINT)


def num_validations(config: Config, steps: int) -> int:
    return -(-steps // config.validation.every_steps)


def test_the_time_to_align_all_pairs_counts(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, align = [0.0], vars(prepare)["align"]

    def align_slowly(pairs: Any, *reserved: Any) -> Any:
        clock[0] += 10.0
        return align(pairs, *reserved)

    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(prepare, "align", align_slowly)
    monkeypatch.setattr(trial, "PAIRS_ENCODED", 40)
    corpus = load_corpus(make_config().data)
    seconds = [
        take_sample(corpus, make_config(f"training.guided_alignment={weight}"), 3.0).start_seconds
        for weight in (0.0, 0.1)
    ]
    # A quarter of the pairs is aligned here.
    assert seconds == [FIXED_SECONDS + 3.0, FIXED_SECONDS + 3.0 + 4 * 10.0]


@pytest.mark.parametrize("minutes", [1, 3, 6, 12])
def test_the_run_takes_the_given_minutes_and_is_timed_once(
    minutes: float, tiny_corpus: Path, tmp_path: Path, timed: list[Config]
) -> None:
    config, text = propose(tiny_corpus, tmp_path, minutes=minutes)
    steps = steps_in(text)
    seconds = seconds_of(config, steps)
    assert 0.97 * 60 * minutes <= seconds <= 60 * minutes
    assert f"steps    {steps:,} of {config.training.batch_tokens:,} tokens" in text
    assert f"about {seconds / 60:.1f} minutes on this machine" in text
    # The run chooses its number of steps itself, by those of its warm-up, if these are enough.
    is_fixed = config.schedule.warmup_steps < LEAST_TIMED
    assert config.schedule.total_steps == (steps if is_fixed else "auto")
    limits = {"max_steps": steps} if is_fixed else {"max_minutes": minutes}
    assert config.training.limits == limits
    assert config.checkpoint.every_steps == config.validation.every_steps
    assert num_validations(config, steps) * (VALIDATION + CHECKPOINT) <= max(2.5, 0.05 * 60 * minutes)
    [_] = timed


def test_a_gpu_gets_the_largest_batch_that_fits_and_is_clearly_faster(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config("training.batch_tokens=256", "schedule.learning_rate=1e-3")
    sample = take_sample(load_corpus(config.data), config, 0.0)
    # A pass of a thousand steps.
    sample = replace(sample, text=replace(sample.text, scale=256_000 / sample.corpus_tokens))
    for full, fitting, expected in (
        (1500, 10**6, 2048),
        (1500, 512, 512),
        (10**6, 10**6, 4096),
        (100, 10**6, 256),
    ):
        # Up to the batch that fills it, the device takes the same time for each step.
        def try_batch(sample: Sample, full: int = full) -> tuple[float, int]:
            tokens = sample.config.training.batch_tokens
            return 0.01 / min(tokens, full), tokens

        monkeypatch.setattr(trial, "try_batch", try_batch)
        monkeypatch.setattr(trial, "usable_memory", lambda device, fitting=fitting: fitting)
        filled = fill_device(sample, torch.device("cuda")).config
        assert filled.training.batch_tokens == expected
        # By the fourth root of the size.
        assert filled.schedule.learning_rate == pytest.approx(1e-3 * (expected / 256) ** 0.25, rel=0.05)
    # Steps are not as large as a fiftieth of a pass.
    assert rule.largest_batch(256_000) == 5120


def test_too_small_a_budget_gets_the_smallest_run_and_a_warning_of_its_time(
    tiny_corpus: Path, tmp_path: Path, timed: list[Config], caplog: pytest.LogCaptureFixture
) -> None:
    config, text = propose(tiny_corpus, tmp_path, minutes=0.01)
    assert config.training.max_steps == FEWEST_STEPS == config.schedule.total_steps
    [warning] = caplog.messages
    assert warning in text
    [(given, needed)] = re.findall(r"([\d.]+) minutes are too few: .* take about ([\d.]+) minutes", warning)
    assert float(given) == 0.01
    config, text = propose(tiny_corpus, tmp_path, minutes=float(needed))
    assert steps_in(text) >= FEWEST_STEPS
    assert "too few" not in text


@pytest.mark.usefixtures("timed")
def test_too_large_a_budget_is_not_used_up(tiny_corpus: Path, tmp_path: Path) -> None:
    config, text = propose(tiny_corpus, tmp_path, minutes=10_000)
    assert "The run ends after 1,000 passes over the corpus, before the budget is used up" in text
    assert float(text.partition("passes   ")[2].split()[0]) == pytest.approx(1000, rel=1e-3)
    assert config.training.max_steps == config.schedule.total_steps


@pytest.mark.slow
def test_real_steps_are_timed_and_the_proposed_run_trains_to_its_end(
    tiny_corpus: Path, tmp_path: Path
) -> None:
    config, text = propose(tiny_corpus, tmp_path, minutes=0.5)
    assert config.schedule.total_steps == "auto"
    # The machine may be faster or slower in a moment.
    num_steps = text.partition("steps    ")[2].split()[0].replace(",", "")
    fixed = "training.max_minutes=null", f"training.max_steps={num_steps}"
    # In so small a corpus, the few longer sentences of as_written would be a seventh of the batches.
    as_it_is = [f"as_written.{name}=0" for name in ("no_final_punctuation", "joined", "noise")]
    config = load_config(tmp_path / "proposed.yaml", [*fixed, *as_it_is])
    outcome = run_training(config, RunDirectory(tmp_path / "run"))
    assert outcome.finished == f"training.max_steps ({outcome.counters.step:,}) reached"
    # Words, commas and points, and EOS.
    lines = (tiny_corpus / "train.de").read_text().splitlines()
    passes = outcome.counters.num_target_tokens / sum(len(line.split()) + 2 for line in lines)
    foretold = float(text.partition("passes   ")[2].split()[0])
    # The last step ends in the middle of a pass.
    assert foretold == pytest.approx(passes, abs=0.2)
