"""Runs that end within a budget, with a pace that the tests choose, so that nothing depends on a clock."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from mt.config.config import Config
from mt.config.load import load_config
from mt.config.model import ModelConfig
from mt.errors import ConfigError
from mt.preflight import budget as budget_module
from mt.preflight import init, rule
from mt.preflight.budget import IMPORT_SECONDS, Budget, CorpusSample, Measured, num_steps_within
from mt.preflight.forecast import Pace
from mt.preflight.init import propose_config
from mt.run_directory import RunDirectory
from mt.training.run import run_training
from mt.training.schedule import learning_rate

SetPace = Callable[..., list[Config]]


@pytest.fixture
def set_pace(monkeypatch: pytest.MonkeyPatch) -> SetPace:
    """Choose how fast steps are; the configs that are then timed are listed."""

    def choose(
        *,
        step_seconds: float = 0.2,
        fixed_seconds: float = 0.0,
        validation_seconds: float = 2.0,
        bf16: float | None = None,
    ) -> list[Config]:
        timed: list[Config] = []

        def measure(
            config: Config, sample: CorpusSample, *, max_seconds: float, validating: bool = False
        ) -> Measured:
            timed.append(config)
            num_steps = sample.corpus_tokens / (0.9 * config.training.batch_tokens)
            seconds = fixed_seconds + step_seconds * config.training.batch_tokens / 1024
            if config.training.precision == "auto" and bf16:
                seconds /= bf16
            seconds *= 2 if config.training.r_drop else 1
            speed = sample.corpus_tokens / num_steps / seconds
            pace = Pace(
                num_steps, sample.corpus_tokens, speed, 0.0, validation_seconds if validating else 0.0
            )
            return Measured(pace, 1.0)

        monkeypatch.setattr(budget_module, "measure", measure)
        monkeypatch.setattr(budget_module, "multiplies_bf16_fast", lambda _: bf16 is not None)
        monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
        return timed

    return choose


def propose(corpus: Path, tmp_path: Path, budget: Budget) -> tuple[Config, str]:
    text = propose_config(str(corpus), "en", "de", budget=budget)
    file = tmp_path / "proposed.yaml"
    file.write_text(text, encoding="utf-8")
    return load_config(file), text.replace("\n# ", " ")


def test_steps_and_validations_fill_the_time_and_grow_with_it() -> None:
    pace = Pace(
        steps_per_epoch=100,
        target_tokens_per_epoch=90_000,
        tokens_per_second=4500,
        epoch_seconds=0.0,
        validation_seconds=7.0,
    )
    before = 0
    for seconds in (1, 10, 60, 300, 600, 1800, 5400, 10**6):
        num_steps, num_validations = num_steps_within(seconds, pace)
        assert num_steps >= before
        before = num_steps
        took = 0.2 * num_steps + 7.0 * num_validations
        if seconds >= 60:
            assert seconds - 0.2 <= took <= seconds
            assert 7.0 * num_validations <= max(7.0, 0.05 * seconds)


@pytest.mark.parametrize("minutes", [1, 2, 5])
@pytest.mark.parametrize("r_drop_passes", [30, 1e9])
def test_the_run_takes_the_minutes_that_are_given(
    minutes: float,
    r_drop_passes: float,
    tiny_corpus: Path,
    tmp_path: Path,
    set_pace: SetPace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed = set_pace(step_seconds=0.6)
    monkeypatch.setattr(rule, "R_DROP_TOKENS", 0)
    monkeypatch.setattr(rule, "R_DROP_PASSES", r_drop_passes)
    config, text = propose(tiny_corpus, tmp_path, Budget(minutes=minutes))
    steps = config.training.max_steps
    assert steps is not None
    assert bool(config.training.r_drop) == (r_drop_passes == 30)
    assert "  weight_decay: 0.3\n" in text
    # By hand from the pace above.
    step_seconds = 0.6 * config.training.batch_tokens / 1024 * (2 if config.training.r_drop else 1)
    num_validations = -(-steps // config.validation.every_steps)
    took = IMPORT_SECONDS + steps * step_seconds + 2.0 * num_validations
    assert 0.9 * 60 * minutes <= took <= 60 * minutes
    assert f"The run: {steps:,} steps" in text
    # What was timed at last is what is written, apart from the number of steps.
    for option in ("batch_tokens", "r_drop", "weight_decay", "precision"):
        assert getattr(timed[-1].training, option) == getattr(config.training, option)
    assert timed[-1].model == config.model
    assert timed[-1].training.ema_decay is not None
    assert config.training.ema_decay is not None


@pytest.mark.parametrize(("fixed_seconds", "r_drop"), [(0.0, 3.0), (0.6, 0.0)])
def test_the_run_is_chosen_by_its_own_pace(
    fixed_seconds: float,
    r_drop: float,
    tiny_corpus: Path,
    tmp_path: Path,
    set_pace: SetPace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The batches of the run have 256 tokens, not 1,024; `fixed_seconds` do not depend on the batch.
    timed = set_pace(step_seconds=0.6, fixed_seconds=fixed_seconds)
    monkeypatch.setattr(rule, "R_DROP_TOKENS", 0)
    monkeypatch.setattr(rule, "R_DROP_PASSES", 30)
    tokens = sum(len(line.split()) + 2 for line in (tiny_corpus / "train.de").read_text().splitlines())
    step_seconds = 2 * (0.6 * 256 / 1024 + fixed_seconds)
    passes = 40 if r_drop else 20
    minutes = passes * tokens / (0.9 * 256) * step_seconds / 60
    config, _ = propose(tiny_corpus, tmp_path, Budget(minutes=minutes))
    assert [bool(each.training.r_drop) for each in timed[1:]] == ([True] if r_drop else [True, False])
    assert config.training.r_drop == r_drop
    assert config.training.batch_tokens == timed[-1].training.batch_tokens == 256


@pytest.mark.parametrize("scale", [1, 2])
def test_all_that_comes_before_the_first_step_is_part_of_the_minutes(
    scale: int, tiny_corpus: Path, tmp_path: Path, set_pace: SetPace, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_pace(step_seconds=0.6)
    # Loading the text takes five seconds, and so do preparing and aligning the part that is examined.
    monkeypatch.setattr(init, "time", SimpleNamespace(perf_counter=itertools.count(step=5).__next__))
    monkeypatch.setattr("mt.preflight.text.MOST_TRAINING_PAIRS", 160 // scale)
    config, _ = propose(tiny_corpus, tmp_path, Budget(minutes=2))
    assert config.training.guided_alignment
    steps = config.training.max_steps
    assert steps is not None
    training = steps * 0.6 * config.training.batch_tokens / 1024
    validating = 2.0 * -(-steps // config.validation.every_steps)
    took = 5 + 2 * 5 * scale + IMPORT_SECONDS + training + validating
    assert 0.9 * 120 <= took <= 120


def test_the_rate_ends_at_zero_with_the_run_after_a_short_warm_up(
    tiny_corpus: Path, tmp_path: Path, set_pace: SetPace
) -> None:
    for minutes in (0.3, 1, 30):
        set_pace()
        config, _ = propose(tiny_corpus, tmp_path, Budget(minutes=minutes))
        steps = config.training.max_steps
        assert steps == config.schedule.total_steps
        assert steps is not None
        assert 10 * config.schedule.warmup_steps <= steps
        peak = config.schedule.learning_rate
        assert learning_rate(steps, config.schedule, d_model=config.model.d_model) <= 0.01 * peak
        assert config.validation.every_steps <= steps


def test_target_tokens_give_the_number_of_steps(tiny_corpus: Path, tmp_path: Path, set_pace: SetPace) -> None:
    set_pace()
    config, text = propose(tiny_corpus, tmp_path, Budget(target_tokens=40_000))
    assert config.training.max_steps == 40_000 // round(0.9 * config.training.batch_tokens)
    assert "This budget is a proposal" not in text


def test_the_faster_precision_is_written(tiny_corpus: Path, tmp_path: Path, set_pace: SetPace) -> None:
    for speed_of_bf16, written in ((2.0, "auto"), (0.5, "float32"), (None, "auto")):
        set_pace(bf16=speed_of_bf16)
        config, _ = propose(tiny_corpus, tmp_path, Budget(minutes=1))
        assert config.training.precision == written


def test_without_a_budget_one_is_proposed(tiny_corpus: Path, tmp_path: Path, set_pace: SetPace) -> None:
    set_pace()
    config, text = propose(tiny_corpus, tmp_path, Budget())
    assert config.training.max_steps is not None
    assert "This budget is a proposal" in text
    # Beyond the passes that were measured, as for this tiny corpus, it says so once and in plain words.
    assert "has not been measured" in " ".join(text.replace("#", "").split())


def test_the_proposed_minutes_are_the_fewest_round_ones_with_room_for_the_sensible_passes(
    tiny_corpus: Path, tmp_path: Path, set_pace: SetPace
) -> None:
    set_pace(step_seconds=6.0)
    config, _ = propose(tiny_corpus, tmp_path, Budget())
    steps = config.training.max_steps
    assert steps is not None
    tokens = sum(len(line.split()) + 2 for line in (tiny_corpus / "train.de").read_text().splitlines())
    # The usual model takes six seconds for a batch of 1,024 tokens, a tenth of which are padding.
    needed = IMPORT_SECONDS + 6.0 * rule.sensible_passes(tokens) * tokens / (0.9 * 1024)
    minutes = next(nice for nice in (1, 2, 3, 5, 7, 10, 15) if 60 * nice >= needed)
    training = steps * 6.0 * config.training.batch_tokens / 1024
    validating = 2.0 * -(-steps // config.validation.every_steps)
    assert 0.9 * 60 * minutes <= IMPORT_SECONDS + training + validating <= 60 * minutes


def test_a_budget_that_was_measured_says_what_half_and_twice_would_buy(
    tiny_corpus: Path, tmp_path: Path, set_pace: SetPace, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_pace()
    for gains, told in (
        ((2.5, 0.7), "halving it cost about 2.5 BLEU and doubling it gained about 0.7 BLEU;"),
        ((None, 0.7), "On 29,000 captions, doubling it gained about 0.7 BLEU;"),
    ):
        values = iter(gains)
        monkeypatch.setattr(init, "gain_of_doubling", lambda _, values=values: next(values))
        _, text = propose(tiny_corpus, tmp_path, Budget())
        assert told in " ".join(text.replace("#", "").split())


def test_too_small_a_budget_is_refused_with_one_that_is_enough(
    tiny_corpus: Path, tmp_path: Path, set_pace: SetPace
) -> None:
    set_pace()
    with pytest.raises(
        ConfigError, match=r"0.01 minutes are not enough .* Give at least (0\.\d) minutes\."
    ) as error:
        propose(tiny_corpus, tmp_path, Budget(minutes=0.01))
    enough = float(str(error.value).rsplit(" ", 2)[1])
    assert propose(tiny_corpus, tmp_path, Budget(minutes=enough))[0].training.max_steps
    with pytest.raises(
        ConfigError, match=r"10 target tokens are not enough .* Give at least ([\d,]+)\."
    ) as error:
        propose(tiny_corpus, tmp_path, Budget(target_tokens=10))
    fewest = int(str(error.value).rsplit(" ", 1)[1].rstrip(".").replace(",", ""))
    assert propose(tiny_corpus, tmp_path, Budget(target_tokens=fewest))[0].training.max_steps


def test_a_huge_budget_ends_where_the_sentences_have_been_seen_often_enough(
    tiny_corpus: Path, tmp_path: Path, set_pace: SetPace
) -> None:
    set_pace()
    for budget in (Budget(minutes=1e5), Budget(target_tokens=10**12)):
        config, text = propose(tiny_corpus, tmp_path, budget)
        assert "The run ends after 1,000 passes" in text
        tokens = sum(len(line.split()) + 2 for line in (tiny_corpus / "train.de").read_text().splitlines())
        assert config.training.max_steps is not None
        assert config.training.max_steps * 0.9 * config.training.batch_tokens < 1100 * tokens


def test_other_work_on_the_machine_is_mentioned(
    tiny_corpus: Path, tmp_path: Path, set_pace: SetPace, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_pace()
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    _, text = propose(tiny_corpus, tmp_path, Budget(minutes=1))
    assert "Other programs keep this machine busy" in text


def test_a_proposed_run_trains_to_its_end(
    tiny_corpus: Path, tmp_path: Path, set_pace: SetPace, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ModelConfig(d_model=8, num_heads=2, d_ff=16, num_encoder_layers=1, num_decoder_layers=1)
    monkeypatch.setattr(rule, "SHAPES", (rule.Shape(0, 0, small, 1e-3),))
    monkeypatch.setattr(budget_module, "USUAL_MODEL", small)
    set_pace(step_seconds=3.0)
    config, _ = propose(tiny_corpus, tmp_path, Budget(minutes=1))
    outcome = run_training(config, RunDirectory(tmp_path / "run"))
    assert outcome.counters.step == config.training.max_steps
    assert "training.max_steps" in (outcome.finished or "")


def test_real_steps_are_timed(tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ModelConfig(d_model=8, num_heads=2, d_ff=16, num_encoder_layers=1, num_decoder_layers=1)
    monkeypatch.setattr(rule, "SHAPES", (rule.Shape(0, 0, small, 1e-3),))
    monkeypatch.setattr(budget_module, "USUAL_MODEL", small)
    monkeypatch.setattr(budget_module, "LEAST_TIMED_SECONDS", 0.01)
    seen: list[Measured] = []
    measure = budget_module.measure

    def watched(config: Config, sample: CorpusSample, **options: float) -> Measured:
        seen.append(measure(config, sample, **options))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(budget_module, "measure", watched)
    propose(tiny_corpus, tmp_path, Budget(target_tokens=20_000))
    # No validation is timed where only the precisions are compared.
    assert [measured.pace.validation_seconds > 0 for measured in seen] == [False] * (len(seen) - 1) + [True]
    # Real words, commas and points, and EOS.
    tokens = sum(len(line.split()) + 2 for line in (tiny_corpus / "train.de").read_text().splitlines())
    for measured in seen:
        assert measured.pace.seconds_per_step > 0
        assert measured.pace.target_tokens_per_epoch >= tokens
