"""All of `mt check --config` on a tiny corpus, and each of its warnings where it is due and nowhere else."""

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

import mt.preflight.check
import mt.preflight.text
import mt.preflight.trial
from mt.config.config import Config
from mt.data.batches.batch import Batch
from mt.data.prepare import prepare
from mt.errors import DataError, MtError, RunError, TrainingError
from mt.preflight.check import preflight
from mt.preflight.forecast import Pace
from mt.preflight.layout import CheckSection
from mt.preflight.trial import Speed
from mt.run_directory import RunDirectory
from mt.training.run import run_training
from mt.training.step import StepResult
from mt.training.train_state import TrainState

MakeConfig = Callable[..., Config]
Check = Callable[..., dict[str, CheckSection]]


@pytest.fixture
def check(make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Checks the tiny config with overrides; its sections by the first word of their titles."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mt.preflight.check, "MOST_TIMED_STEPS", 2)

    def run(*overrides: str, run: str = "runs/tiny") -> dict[str, CheckSection]:
        sections = preflight(make_config(*overrides), RunDirectory(Path(run)))
        return {re.split(r"\W", section.title)[0]: section for section in sections}

    return run


def value_of(section: CheckSection, key: str) -> str:
    (line,) = [line for line in section.lines if line.startswith(key + "  ")]
    return line.removeprefix(key).strip()


def warnings_of(sections: dict[str, CheckSection]) -> list[str]:
    return [warning for section in sections.values() for warning in section.warnings]


def words_of(file: Path) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", file.read_text(encoding="utf-8"))


def test_figures_by_hand(check: Check, tiny_corpus: Path, tmp_path: Path) -> None:
    sections = check()
    assert list(sections) == [
        *("config", "corpus", "samples", "vocabulary", "lengths", "batches", "model", "the")
    ]
    known = {side: set(words_of(tiny_corpus / f"train.{side}")) for side in ("en", "de")}
    assert sections["vocabulary"].title == (
        f"vocabulary: {len(known['en']) + 4} source and {len(known['de']) + 4} target entries"
    )
    for split in ("validation", "test"):
        for name, side in (("sources", "en"), ("targets", "de")):
            words = words_of(tiny_corpus / f"{split}.{side}")
            # One of them is the zebra.
            assert re.split("  +", value_of(sections["vocabulary"], f"{split} {name}")) == [
                f"{100 / len(words):.1f} % (1 of {len(words)})",
                f"{100 / len(set(words)):.1f} % (1 of {len(set(words))})",
            ]
    sample = (tiny_corpus / "validation.en").read_text(encoding="utf-8").splitlines()[0]
    assert sections["samples"].lines[0] == f"source   {sample}"
    assert sections["samples"].lines[2] == f"decoded  {sample}"
    lines = (tiny_corpus / "train.en").read_text(encoding="utf-8").splitlines()
    lengths = [len(re.findall(r"\w+|[^\w\s]", line)) + 1 for line in lines]
    assert value_of(sections["lengths"], "training sources").split() == [
        f"{sum(lengths) / 160:.1f}", str(sorted(lengths)[151]), str(max(lengths)), "0.0", "%"
    ]  # fmt: skip
    # Nothing was written.
    assert list(tmp_path.iterdir()) == []


def test_a_split_that_is_held_out_is_called_so(check: Check, tiny_corpus: Path, tmp_path: Path) -> None:
    for side in ("en", "de"):
        for split in ("train", "validation"):
            shutil.copy(tiny_corpus / f"{split}.{side}", tmp_path)
    corpus = check("data.held_out_fraction=0.1", f"data.path={tmp_path}")["corpus"]
    assert re.search(r"pairs +held out, ", value_of(corpus, "test"))


def test_a_target_without_text_is_found_before_training(
    check: Check, tiny_corpus: Path, tmp_path: Path
) -> None:
    corpus = shutil.copytree(tiny_corpus, tmp_path / "corpus")
    file = corpus / "validation.de"
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("".join(f"{line}\n" for line in [lines[0], "", *lines[2:4], " ", *lines[5:]]))
    (warning,) = [each for each in warnings_of(check(f"data.path={corpus}")) if "cannot be scored" in each]
    assert "the validation split" in warning
    assert "2 targets" in warning
    assert "pair 2 is the first" in warning


def write_validation(folder: Path, pairs: Sequence[tuple[str, str]]) -> None:
    for number, language in enumerate(("en", "de")):
        lines = "".join(f"{pair[number]}\n" for pair in pairs)
        (folder / f"validation.{language}").write_text(lines, encoding="utf-8")


FITS, EMPTY, TOO_LONG = ("a dog", "ein Hund"), ("", "ein Hund"), ("a dog", "Hund " * 16)


@pytest.mark.parametrize(
    ("left_out", "number"),
    [([], None), ([EMPTY], "1 pair (5.0 %)"), ([EMPTY, TOO_LONG], "2 pairs (10.0 %)")],
)
def test_validation_pairs_without_a_loss_are_counted_and_many_of_them_are_reported(
    left_out: list[tuple[str, str]],
    number: str | None,
    check: Check,
    tiny_corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    corpus = shutil.copytree(tiny_corpus, tmp_path / "corpus")
    write_validation(corpus, [*left_out, *[FITS] * (20 - len(left_out))])
    sections = check(f"data.path={corpus}")
    lines = [line for line in sections["lengths"].lines if "validation" in line]
    assert lines == ([f"left out of the validation loss: {number}"] if number else [])
    reported = "10.0% of the validation pairs are empty or have more tokens than data.max_length (16), so"
    warnings = sections["lengths"].warnings
    # One in twenty is not worth a warning.
    assert len(warnings) == (len(left_out) == 2)
    assert all(reported in warning for warning in warnings)
    # Of a sample, it is an estimate: the first and the eleventh pair are examined.
    monkeypatch.setattr(mt.preflight.text, "MOST_EVALUATION_PAIRS", 2)
    sampled = check(f"data.path={corpus}")["lengths"].lines
    assert ("left out of the validation loss: about 10 pairs (50.0 %)" in sampled) == bool(left_out)


def test_a_sample_without_any_validation_loss_is_not_refused(
    check: Check, tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mt.preflight.text, "MOST_EVALUATION_PAIRS", 2)
    corpus = shutil.copytree(tiny_corpus, tmp_path / "corpus")
    write_validation(corpus, [TOO_LONG, FITS, TOO_LONG, FITS])
    warnings = check(f"data.path={corpus}", "validation.metric=loss")["lengths"].warnings
    assert any("100.0% of the validation pairs are empty or have more" in warning for warning in warnings)


def test_the_run_is_told_ahead(check: Check) -> None:
    sections = check()
    run = sections["the"]
    assert value_of(run, "length") == "12 steps, limited by training.max_steps"
    assert value_of(run, "checkpoints").startswith("4, and each new best; ")
    assert " of 3 validations" in value_of(run, "time")


def test_the_time_is_from_that_of_the_fastest_steps_on_an_idle_machine_to_that_of_the_slowest(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    # From 50 to 100 tokens a second, 80 on average, with a processor for four of five seconds.
    speed = Speed([100] * 4, [1.0, 1.0, 1.0, 2.0], 4.0)
    pace = Pace(5, 5000, speed.tokens_per_second, 0.0, 0.0)
    monkeypatch.setattr(mt.preflight.check, "measure_pace", lambda *_, **__: (speed, pace))
    # Twelve steps of 1,000 tokens: at 100 / 0.8 a second, at 50, and at 80.
    time = value_of(check()["the"], "time")
    assert time.startswith("96.0 seconds to 4.0 minutes; at this speed 2.5 minutes of training and ")


@pytest.mark.usefixtures("check")
def test_a_moving_average_of_the_weights_is_in_the_table_of_memory(make_config: MakeConfig) -> None:
    tables = [
        section
        for options in ((), ("training.ema_decay=0.9",))
        for section in preflight(make_config(*options), RunDirectory(Path("runs/tiny")))
        if section.title == "the largest batches, and memory"
    ]
    without, averaged = tables
    assert not any("average" in line for line in without.lines)
    assert value_of(averaged, "average") == value_of(averaged, "weights")


def test_a_run_that_exists_shows_how_much_is_done(
    check: Check, make_config: MakeConfig, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "runs" / "tiny")
    run_training(make_config("training.max_steps=4"), run)
    sections = check()
    assert value_of(sections["the"], "length") == "12 steps, limited by training.max_steps"
    assert value_of(sections["the"], "done").startswith("4 steps of them, in ")
    assert sections["the"].verdict == "This run can continue from step 4."
    sections = check("training.max_steps=4", "data.path=/nowhere")
    assert list(sections) == ["config", "the"]
    assert sections["the"].lines == ["finished: training.max_steps (4) reached"]
    assert sections["the"].verdict == "This run is finished: raise that limit to train it further."


def test_a_finished_cosine_is_not_told_to_raise_a_limit(
    check: Check, make_config: MakeConfig, tmp_path: Path
) -> None:
    options = "schedule.kind=cosine", "schedule.total_steps=6", "training.max_steps=6"
    run_training(make_config(*options), RunDirectory(tmp_path / "runs" / "tiny"))
    assert check(*options)["the"].verdict == (
        "This run is finished, and its cosine schedule has ended: to train longer, raise that limit and "
        "schedule.total_steps in a new run."
    )


def test_the_disk_needs_no_room_for_the_checkpoints_that_exist(
    check: Check, make_config: MakeConfig, tmp_path: Path
) -> None:
    def needed() -> float:
        (found,) = re.findall(
            r"up to (\S+) KB of ", value_of(check("checkpoint.keep=2")["the"], "disk space")
        )
        return float(found)

    of_all = needed()
    saved = ("training.max_steps=4", "checkpoint.every_steps=1", "checkpoint.keep=2")
    run_training(make_config(*saved), RunDirectory(tmp_path / "runs" / "tiny"))
    num_saved = len(list((tmp_path / "runs" / "tiny" / "checkpoints").glob("step_*")))
    assert num_saved in (2, 3)
    assert needed() == pytest.approx(of_all * (4 - num_saved) / 4, rel=0.05)


def test_a_run_that_exists_is_checked_with_its_own_tokenizers(
    check: Check, make_config: MakeConfig, tmp_path: Path
) -> None:
    first, theirs = RunDirectory(tmp_path / "first"), tmp_path / "theirs.json"
    run_training(make_config("training.max_steps=1", "tokenizer.kind=bpe", "tokenizer.shared=true"), first)
    first.src_tokenizer_file.rename(theirs)
    external = ["tokenizer.kind=file", f"tokenizer.path={theirs}", "tokenizer.shared=true"]
    run_training(make_config("training.max_steps=1", *external), RunDirectory(tmp_path / "runs" / "tiny"))
    # Training does not need it any more.
    theirs.unlink()
    assert check(*external)["the"].verdict == "This run can continue from step 1."


def test_a_corpus_too_large_to_look_at_whole(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches = ("training.batch_tokens=20", "training.max_epochs=2", "training.max_steps=null")
    whole = check(*small_batches)
    monkeypatch.setattr(mt.preflight.text, "MOST_TRAINING_PAIRS", 80)
    monkeypatch.setattr(mt.preflight.text, "MOST_EVALUATION_PAIRS", 6)
    sample = check(*small_batches)
    assert "what follows is estimated from 80 of the training pairs" in sample["corpus"].lines
    assert "6 pairs of the test split are examined" in sample["corpus"].lines
    # An epoch of the whole corpus is foretold from half of it.
    steps = [float(value_of(sections["the"], "length").split()[0]) for sections in (whole, sample)]
    assert steps[1] == pytest.approx(steps[0], rel=0.1)


def test_weights_count_in_a_corpus_too_large_to_look_at_whole(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "more.jsonl").write_text('{"en": "x y", "de": "y x"}\n' * 30)
    mix = f"data.mix={tmp_path / 'more.jsonl'} weight=20"
    overrides = (mix, "training.batch_tokens=20", "training.max_epochs=2", "training.max_steps=null")
    whole = check(*overrides)
    monkeypatch.setattr(mt.preflight.text, "MOST_TRAINING_PAIRS", 80)
    steps = [float(value_of(each["the"], "length").split()[0]) for each in (whole, check(*overrides))]
    assert steps[1] == pytest.approx(steps[0], rel=0.1)


DUE = [
    (["schedule.warmup_steps=20"], "(schedule.warmup_steps 20) is not over when the run ends at step 12"),
    (
        ["schedule.kind=cosine", "schedule.total_steps=20"],
        # Half a cosine from 1 at step 5 to 0 at step 20: at 12 it is (1 + cos(7/15 pi)) / 2.
        "before the cosine schedule reaches zero at schedule.total_steps (20): the learning rate is still at "
        "55% of its peak",
    ),
    (
        [
            *("schedule.kind=cosine", "schedule.total_steps=6"),
            *("training.max_steps=null", "training.max_epochs=3"),
        ],
        "the cosine schedule reaches zero at schedule.total_steps (6), but the run continues to about step",
    ),
    (["validation.every_steps=13"], "validation.every_steps (13) is more than the run's 12 steps"),
    (["validation.patience=3"], "validation.patience (3) can never stop this run, which ends after 3"),
    (["training.r_drop=5", "model.dropout=0"], "training.r_drop (5) compares two passes that differ only in"),
    (["training.batch_tokens=15"], "training.batch_tokens (15) is smaller than data.max_length (16)"),
    (["data.max_length=8"], "data.max_length (8) drops "),
    (["tokenizer.min_frequency=60"], "of the words in the test"),
    (["tokenizer.min_frequency=60"], "with this vocabulary, a model that makes no mistakes scores "),
    ([], "the test split has 22 pairs: below 100, scores are mostly chance"),
    ([], "the validation split has 12 pairs"),
]  # fmt: skip


@pytest.mark.parametrize(("overrides", "sentence"), DUE)
def test_warnings_that_are_due(check: Check, overrides: list[str], sentence: str) -> None:
    assert any(sentence in warning for warning in warnings_of(check(*overrides)))


def test_warnings_that_are_not_due(check: Check) -> None:
    sections = check("validation.patience=2", "schedule.kind=cosine", "schedule.total_steps=12")
    undue = [sentence for overrides, sentence in DUE if overrides]
    for warning in warnings_of(sections):
        # What is wrong, without the remedy: on a slow machine another warning may name the same option there.
        wrong = warning.split(". ")[0]
        assert not any(sentence[:20] in wrong for sentence in undue if sentence[0] != "o"), warning


def test_a_run_that_is_there_already(check: Check, trained: RunDirectory) -> None:
    # As training refuses it: "&& mt train" is not to fail after a check that has not.
    with pytest.raises(
        RunError, match=r"started with another config:\n  model.d_model: 32 -> 16\n  model.dr"
    ):
        check(run=str(trained.path))
    same = check("model.d_model=32", "model.dropout=0.1", run=str(trained.path))
    assert same["config"].warnings == []
    assert value_of(same["config"], "run").endswith("which exists already")


def change_corpus(run: RunDirectory, corpus: Path) -> None:
    for language in ("en", "de"):
        with (corpus / f"train.{language}").open("a", encoding="utf-8") as file:
            file.write("one more\n")


def remove_checkpoints(run: RunDirectory, corpus: Path) -> None:
    shutil.rmtree(run.checkpoints_dir)


def remove_tokenizer(run: RunDirectory, corpus: Path) -> None:
    run.src_tokenizer_file.unlink()


def remove_config(run: RunDirectory, corpus: Path) -> None:
    run.config_file.unlink()


def damage_records(run: RunDirectory, corpus: Path) -> None:
    for record in run.checkpoints_dir.glob("*/checkpoint.json"):
        record.write_text("{}")


@pytest.mark.parametrize(
    "spoil", [change_corpus, remove_checkpoints, remove_tokenizer, remove_config, damage_records]
)
def test_a_run_that_training_would_not_continue(
    spoil: Callable[[RunDirectory, Path], None],
    check: Check,
    trained: RunDirectory,
    make_config: MakeConfig,
    tiny_corpus: Path,
    tmp_path: Path,
) -> None:
    spoil(trained, Path(shutil.copytree(tiny_corpus, tmp_path / "corpus")))
    options = ("model.d_model=32", "model.dropout=0.1", "training.max_steps=300", "data.path=corpus")
    before = {path: path.stat().st_mtime_ns for path in trained.path.rglob("*")}
    with pytest.raises(MtError) as refused:
        check(*options, run=str(trained.path))
    assert {path: path.stat().st_mtime_ns for path in trained.path.rglob("*")} == before
    with pytest.raises(MtError, match=re.escape(str(refused.value))):
        run_training(make_config(*options), trained)


def test_a_run_that_training_would_continue_from_an_older_checkpoint(
    check: Check, trained: RunDirectory
) -> None:
    (trained.checkpoints_dir / "step_0000200" / "model.safetensors").unlink()
    assert check("model.d_model=32", "model.dropout=0.1", run=str(trained.path))


def test_a_run_directory_that_training_would_refuse(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"Cannot use file/run as a run directory: .*file is not a folder"):
        check(run="file/run")
    with RunDirectory(tmp_path / "busy").lock(), pytest.raises(RunError, match=f"process {os.getpid()} on"):
        check(run="busy")
    # The superuser may write anywhere, so that permissions alone would not do.
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(RunError, match=r"Cannot use runs/new as a run directory: .* cannot be written"):
        check(run="runs/new")


def test_a_model_that_does_not_fit_is_a_sentence(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    for function in ("measure_size", "build_model", "measure_pace"):
        with monkeypatch.context() as patch:
            patch.setattr(mt.preflight.check, function, full)
            with pytest.raises(TrainingError, match=r"do not fit into memory\. Lower model\.d_model \(16\)"):
                check()


def test_a_trial_that_diverges_ends_with_a_sentence(check: Check) -> None:
    steep = "schedule.kind=constant", "schedule.warmup_steps=0", "training.clip_norm=null"
    with pytest.raises(TrainingError, match=r"NaN or infinite after the first steps\. Try a lower"):
        check(*steep, "schedule.learning_rate=1e30")


def test_a_disk_that_is_too_small(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    one = 12 * sum(int(line.split()[-1].replace(",", "")) for line in check()["model"].lines)
    monkeypatch.setattr(mt.preflight.check, "_free_disk", lambda run: 4 * one)
    assert any("the checkpoints to come take up to" in warning for warning in warnings_of(check()))
    monkeypatch.setattr(mt.preflight.check, "_free_disk", lambda run: one - 1)
    with pytest.raises(RunError, match=r"a checkpoint takes .* are free where runs/tiny will be"):
        check()


def test_what_is_known_is_reported_before_what_fails(make_config: MakeConfig, tmp_path: Path) -> None:
    sections = preflight(make_config("data.max_length=4"), RunDirectory(tmp_path / "run"))
    said: list[str] = []
    reason = "no training pair is left: of 160 pairs, 0 are empty on a side and 160"
    with pytest.raises(DataError, match=reason):
        said.extend(section.title.split(":")[0] for section in sections)
    assert said == ["config", "corpus", "samples from the validation split", "vocabulary"]


def test_an_epoch_that_would_show_no_pair_is_refused(make_config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "short.tsv").write_text("en\tde\na\tb\nc\td\n", encoding="utf-8")
    mixed = [f"data.mix={tmp_path / 'short.tsv'} weight=0.2", "data.max_length=4"]
    reason = r"no epoch would show a training pair: 2 pairs fit data\.max_length \(4\)"
    with pytest.raises(DataError, match=reason):
        list(preflight(make_config(*mixed), RunDirectory(tmp_path / "run")))


def test_a_run_that_would_have_no_validation_loss_to_choose_by_is_refused(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for split, words in (("train", 3), ("dev", 30), ("test", 3)):
        rows = [json.dumps({"en": f"{i} " * words, "de": f"{i} " * words}) + "\n" for i in range(40)]
        (corpus / f"{split}.jsonl").write_text("".join(rows), encoding="utf-8")
    short = (f"data.path={corpus}", "data.max_length=8")
    by_loss, run = make_config(*short, "validation.metric=loss"), RunDirectory(tmp_path / "run")
    run.path.mkdir()
    reason = r"no validation loss: of 40 validation pairs, none .* data\.max_length \(8\)\. Raise it"
    with pytest.raises(DataError, match=reason):
        list(preflight(by_loss, run))
    with pytest.raises(DataError, match=reason):
        prepare(by_loss, run, resuming=False)
    prepare(make_config(*short, "validation.metric=bleu"), run, resuming=False)


@pytest.mark.parametrize("weight", [0.0, 0.1])
def test_all_steps_that_are_tried_are_steps_of_this_config(
    weight: float, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_aligned: list[bool] = []

    take_step = TrainState.step

    def noted(self: TrainState, batches: Sequence[Batch]) -> StepResult:
        is_aligned.extend(batch.alignment is not None for batch in batches)
        return take_step(self, batches)

    monkeypatch.setattr(TrainState, "step", noted)
    check(f"training.guided_alignment={weight}")
    assert set(is_aligned) == {weight > 0}


def test_lower_case_is_reported(check: Check, caplog: pytest.LogCaptureFixture) -> None:
    check("tokenizer.lowercase=true")
    assert caplog.text.count("the model reads and writes lower case only") == 1


def test_batches_are_those_of_sentences_as_they_are_cut(check: Check) -> None:
    bpe = ("tokenizer.kind=bpe", "tokenizer.max_size=400", "data.max_length=200")
    whole, cut = (
        int(value_of(check(*bpe, f"training.bpe_dropout={share}")["batches"], "in an epoch").split()[0])
        for share in (0, 0.5)
    )
    assert cut > whole


@pytest.mark.parametrize("is_fast", [True, False])
def test_it_says_which_numbers_auto_takes(
    is_fast: bool, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt.device.multiplies_bf16_fast", lambda _: is_fast)
    step = value_of(check("training.precision=auto")["config"], "step")
    assert step.endswith("in bf16" if is_fast else "in float32")
