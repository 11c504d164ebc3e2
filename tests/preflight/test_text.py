"""What is counted in a text, and the length of a run, against counts made by hand."""

from dataclasses import replace
from pathlib import Path

import datasets
import pytest

from mt.config.data import TokenizerConfig
from mt.data.batches.stream import training_batches
from mt.data.corpus import load_corpus
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import train_tokenizer
from mt.preflight.check import warn_of_schedule, warn_of_validation
from mt.preflight.plan import fit, plan_run
from mt.preflight.text import Unknown, count_unknown, encode, examine, num_running_words, unknown_words
from mt.training.budget import Pace
from tests.fixture_types import MakeConfig

# An epoch of 50 steps of 100 tokens, half a second a step.
PACE = Pace(50, 5000, 0.5, validation_seconds=3, checkpoint_seconds=1, start_seconds=10)


def tokenizer_of(text: str) -> Tokenizer:
    return train_tokenizer([text], TokenizerConfig(min_frequency=1))


def test_unknown_words() -> None:
    tokenizer = tokenizer_of("a dog sees a cat .")
    # a zebra sees a dog | the zebra .
    unknown = count_unknown(["a zebra sees a dog", "the zebra ."], tokenizer)
    assert unknown == Unknown(num_unknown=3, num_words=8)
    assert unknown.share == 3 / 8
    assert count_unknown(["", ""], tokenizer).share == 0


def test_running_words() -> None:
    # Two or four words, and three: on an average side, 2.5 or 3.5.
    sources = ["a b"] * 50 + ["a b c d"] * 50
    assert num_running_words(datasets.Dataset.from_dict({"src": sources, "tgt": ["e f g"] * 100})) == 300
    # Each character counts where nothing separates words.
    assert num_running_words(datasets.Dataset.from_dict({"src": ["a b c d e"], "tgt": ["两只狗"]})) == 4


def test_an_epoch_of_a_mix_is_estimated_from_a_part(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt.preflight.text.MOST_EVALUATION_PAIRS", 4)
    (tmp_path / "more.jsonl").write_text('{"en": "x y", "de": "y x"}\n' * 30)
    config = make_config(f"data.mix={tmp_path / 'more.jsonl'} weight=20", "training.batch_tokens=20")
    corpus, num_steps = load_corpus(config.data), []
    for most in (300_000, 80):
        text = examine(corpus, config, most=most)
        pairs, _ = encode(config, text)
        num_steps.append(training_batches(config, pairs, text.tokenizers).num_steps(0) * text.scale)
    assert num_steps[1] == pytest.approx(num_steps[0], rel=0.1)
    assert (text.scale, text.validation_scale) == (190 / 80, 12 / 4)
    # A pass shows each of the 30 pairs 20 times.
    alone = make_config("training.batch_tokens=20")
    text = examine(load_corpus(alone.data), alone)
    pairs, _ = encode(alone, text)
    assert num_steps[0] > 2 * training_batches(alone, pairs, text.tokenizers).num_steps(0)


def test_the_validation_of_all_sources_is_counted(make_config: MakeConfig, tiny_corpus: Path) -> None:
    back = f"data.sources.back.path={tiny_corpus}", "data.sources.back.src=de", "data.sources.back.tgt=en"
    config = make_config(*back)
    text = examine(load_corpus(config.data), config)
    assert text.validation_scale == 2
    assert text.evaluation["back validation"]["src"][:] == text.evaluation["validation"]["tgt"][:]
    assert len(unknown_words(text)) == 6


def test_a_run_by_arithmetic(make_config: MakeConfig) -> None:
    config = make_config("training.max_steps=120", "validation.every_steps=50", "checkpoint.every_steps=40")
    run = plan_run(config, PACE)
    assert (run.num_steps, run.ended_by) == (120, "training.max_steps")
    # Validated at 50, 100 and 120; saved at 40, 80 and 120.
    assert (run.num_validations, run.num_checkpoints) == (3, 3)
    # And after each epoch, at 50 and 100.
    at_epochs = make_config(
        "training.max_steps=120", "checkpoint.every_steps=40", "checkpoint.every_epochs=1"
    )
    assert plan_run(at_epochs, PACE).num_checkpoints == 5
    assert (run.validating_seconds, run.seconds) == (9, 10 + 60 + 9 + 3)
    assert list(warn_of_validation(run)) == []
    often = plan_run(make_config("training.max_steps=120", "validation.every_steps=4"), PACE)
    # 30 validations of 3 seconds, 60 seconds of steps, 10 for the start, 40 checkpoints of a second.
    assert often.seconds == 90 + 60 + 10 + 40
    by_epochs = make_config(
        "training.max_steps=120", "validation.every_steps=500", "validation.every_epochs=1"
    )
    assert list(warn_of_validation(plan_run(by_epochs, PACE))) == []
    # One that takes most of the time cannot be left out.
    once = plan_run(make_config("validation.every_steps=12"), replace(PACE, validation_seconds=99))
    assert list(warn_of_validation(once)) == []
    [warning] = warn_of_validation(often)
    assert warning.startswith("45% of the run's time goes into 30 validations. Raise validation.every_steps")


@pytest.mark.parametrize(
    ("limits", "num_steps", "ended_by", "slack"),
    [
        (["max_epochs=3"], 150, "training.max_epochs", 1.05),
        (["max_steps=140", "max_epochs=3"], 140, "training.max_steps", 1),
        # A validation of 3 seconds every 4 steps.
        (["max_minutes=1"], 48, "training.max_minutes", 2),
    ],
)
def test_the_limit_that_is_met_first(
    make_config: MakeConfig, limits: list[str], num_steps: int, ended_by: str, slack: float
) -> None:
    run = plan_run(make_config("training.max_steps=null", *(f"training.{limit}" for limit in limits)), PACE)
    assert (run.num_steps, run.ended_by, run.is_certain, run.slack) == (num_steps, ended_by, True, slack)


def test_a_budget_is_enough_from_the_fewest_to_the_most_steps(make_config: MakeConfig) -> None:
    # Twenty steps in 10 seconds, and a validation with a checkpoint in 31.
    pace = replace(PACE, validation_seconds=30)
    assert "a validation take about 0.9 minutes" in fit(make_config(), 0.8, pace).note
    enough = fit(make_config(), (10 + 31 + 10) / 60, pace)
    assert (enough.num_steps, enough.num_validations, enough.note) == (20, 1, "")
    # A thousand passes with twelve validations; they are further apart, in case that the machine is faster,
    # so that there is one fewer, and thirty steps more.
    whole = fit(make_config(), 423, replace(pace, validation_seconds=14, start_seconds=200))
    assert (whole.num_steps, whole.num_validations, whole.note) == (50_030, 11, "")
    assert whole.config.validation.every_steps == whole.config.checkpoint.every_steps == 5001


STEPS = "validation.every_steps=50", "training.max_steps=120"
EPOCHS = "validation.every_steps=50", "training.max_steps=null", "training.max_epochs=3"
MINUTES = *EPOCHS[:2], "training.max_minutes=1"


@pytest.mark.parametrize(
    ("limit", "option", "largest", "warning"),
    [
        (STEPS, "schedule.warmup_steps", 120, "(schedule.warmup_steps 121) is not over when the run ends at"),
        # Epochs may differ from 150 steps by a twentieth.
        (EPOCHS, "schedule.warmup_steps", 157, "(schedule.warmup_steps 158) is not over"),
        # The last steps of a cosine hardly change anything.
        (STEPS, "schedule.kind=cosine schedule.total_steps", 127, "learning rate is still at 1% of its peak"),
        # 108 steps at this pace, or twice as many.
        (MINUTES, "schedule.kind=cosine schedule.total_steps", 216, "(217): the learning rate is still at"),
        (STEPS, "validation.every_steps", 120, "validation.every_steps (121) is more than the run's 120"),
    ],
)
def test_a_number_is_warned_of_where_it_is_too_large(
    make_config: MakeConfig, limit: tuple[str, ...], option: str, largest: int, warning: str
) -> None:
    warnings = []
    for number in (largest, largest + 1):
        run = plan_run(make_config(*limit, *f"{option}={number}".split()), PACE)
        warnings.append([*warn_of_schedule(run), *warn_of_validation(run)])
    assert warnings[0] == []
    [text] = warnings[1]
    assert warning in text


def test_a_cosine_is_warned_of_where_it_ends_too_early(make_config: MakeConfig) -> None:
    warnings = []
    for kind, total in (("cosine", 143), ("constant", 142), ("cosine", 142)):
        config = make_config(*EPOCHS, f"schedule.kind={kind}", f"schedule.total_steps={total}")
        warnings.append(list(warn_of_schedule(plan_run(config, PACE))))
    assert warnings[:2] == [[], []]
    [text] = warnings[2]
    assert "schedule.total_steps (142), but the run continues to about step 150 (" in text


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        (
            ["schedule.kind=cosine", "schedule.total_steps=39"],
            "(39), but the run continues to at least step 40",
        ),
        # It may last longer, until a longer warm-up is over and a longer cosine has reached zero.
        (["schedule.kind=cosine", "schedule.total_steps=400"], None),
        (["schedule.warmup_steps=41"], None),
    ],
)
def test_patience_alone_gives_the_earliest_end(
    make_config: MakeConfig, options: list[str], warning: str | None
) -> None:
    patience = ("training.max_steps=null", "validation.patience=3", "validation.every_steps=10")
    config = make_config(*patience, *options)
    run = plan_run(config, PACE)
    # The first validation is a gain, the three after it may be none.
    assert (run.num_steps, run.ended_by, run.is_certain) == (40, "validation.patience", False)
    warnings = list(warn_of_schedule(run))
    assert len(warnings) == (warning is not None)
    assert all(warning in text for text in warnings if warning)
