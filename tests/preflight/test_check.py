"""All of `mt check --config` on a tiny corpus, and each of its warnings where it is due and nowhere else."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pytest

from mt.config.data import DataConfig
from mt.data.corpus import load_corpus
from mt.data.prepare import prepare
from mt.display import size
from mt.errors import DataError, MtError, RunError
from mt.preflight.check import NUM_SAMPLES, Conclusion, Section, preflight
from mt.preflight.text import MOST_EVALUATION_PAIRS, MOST_TRAINING_PAIRS, PAIRS_ENCODED
from mt.preflight.trial import MOST_STEPS, SAVED_BYTES_PER_SECOND, TIMED_SECONDS
from mt.run_directory import RunDirectory
from mt.training.run import run_training
from tests.fixture_types import MakeConfig


@dataclass(frozen=True)
class Report:
    sections: dict[str, Section]
    conclusion: Conclusion

    def __getitem__(self, name: str) -> Section:
        return self.sections[name]

    def detail(self, section: str, name: str) -> str:
        (value,) = [value for key, value in self.sections[section].details if key == name]
        return value


Check = Callable[..., Report]


@pytest.fixture
def check(make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Checks the tiny config with overrides."""
    monkeypatch.chdir(tmp_path)

    def run(*overrides: str, run: str = "runs/tiny") -> Report:
        sections: list[Section] = []
        conclusion = preflight(make_config(*overrides), RunDirectory(Path(run)), sections.append)
        return Report({section.name: section for section in sections}, conclusion)

    return run


def words_of(file: Path) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", file.read_text(encoding="utf-8"))


def token_lengths(file: Path) -> list[int]:
    """With EOS."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [len(re.findall(r"\w+|[^\w\s]", line)) + 1 for line in lines]


def test_figures_by_hand(check: Check, tiny_corpus: Path, tmp_path: Path) -> None:
    report = check()
    assert list(report.sections) == [
        "run",
        "corpus",
        "vocabulary",
        "lengths",
        "model",
        "memory",
        "time",
        "disk",
    ]
    assert report["run"].summary == "runs/tiny, which is new, on cpu in float32"
    assert report.conclusion.verdict == "This run can begin."
    assert report["corpus"].summary == "160 training pairs and 0 dropped, 12 validation, 22 test"
    known = {side: set(words_of(tiny_corpus / f"train.{side}")) for side in ("en", "de")}
    fewest = 10**9
    for split in ("validation", "test"):
        for name, side in (("sources", "en"), ("targets", "de")):
            # One of them is the zebra.
            num_words = len(words_of(tiny_corpus / f"{split}.{side}"))
            fewest = min(fewest, num_words)
            assert report.detail("vocabulary", f"{split} {name}") == f"1 of {num_words} words unknown"
    assert report["vocabulary"].summary == (
        f"{len(known['en']) + 4} source and {len(known['de']) + 4} target entries; "
        f"up to {1 / fewest:.1%} of the held-out words are unknown"
    )
    for name, side in (("source", "en"), ("target", "de")):
        sample = (tiny_corpus / f"validation.{side}").read_text(encoding="utf-8").splitlines()[0]
        assert (name, sample) in report["vocabulary"].details
        assert ("decoded", sample) in report["vocabulary"].details
        assert [key for key, _ in report["vocabulary"].details].count(name) == 3
    lengths = {side: token_lengths(tiny_corpus / f"train.{side}") for side in ("en", "de")}
    means = {side: sum(counts) / 160 for side, counts in lengths.items()}
    assert report["lengths"].summary == (
        f"{means['en']:.1f} source and {means['de']:.1f} target tokens on average, with EOS; "
        f"{max(*lengths['en'], *lengths['de'])} in the longest sentence"
    )
    for name, side in (("sources", "en"), ("targets", "de")):
        assert report.detail("lengths", f"95 % of {name}") == f"up to {sorted(lengths[side])[151]} tokens"
    num_long = sum(max(pair) > 8 for pair in zip(*lengths.values(), strict=True))
    endless = "training.max_steps=null", "validation.patience=2", "training.ema_decay=0.9"
    short = check("data.max_length=8", *endless)
    assert short.detail("lengths", "dropped as too long") == f"{num_long} training pairs"
    assert re.fullmatch(r"at least .* steps, limited by validation\.patience", short["time"].summary)
    assert short.detail("memory", "average") == short.detail("memory", "weights")
    assert [name for name, _ in report["memory"].details] == ["batch", "weights", "gradients", "moments"]
    num_parameters = sum(int(number.replace(",", "")) for _, number in report["model"].details)
    assert report["model"].summary == f"{num_parameters:,} parameters"
    # In float32; Adam has two moments of each parameter.
    for name, count in (("weights", 1), ("gradients", 1), ("moments", 2)):
        assert report.detail("memory", name) == size(4 * count * num_parameters)
    assert report["memory"].summary.endswith(" at the peak of a step on the largest batch")
    assert re.fullmatch(r"\S+ for 12 steps, limited by training\.max_steps", report["time"].summary)
    assert report.detail("time", "step") == "2 x 100 tokens"
    [(num_steps, passes)] = re.findall(r"^(\d+) steps; ([\d.]+) in all$", report.detail("time", "epoch"))
    assert int(num_steps) * float(passes) == pytest.approx(12, rel=0.1)
    assert report.detail("time", "3 validations")
    # Weights and moments; the checkpoints that are kept, the best, and the one that is being saved.
    one = 12 * num_parameters
    assert report.detail("disk", "checkpoints") == f"4, and each new best; {size(one)} each"
    assert report["disk"].summary.startswith(f"up to {size(5 * one)} of checkpoints; ")
    # Each fact is said once.
    summaries = [section.summary for section in report.sections.values()]
    details = list(chain.from_iterable(section.details for section in report.sections.values()))
    assert len({*summaries, *details}) == len(summaries) + len(details)
    # Nothing was written.
    assert list(tmp_path.iterdir()) == []


def test_the_directions_are_listed_with_what_is_shown_of_each(check: Check, tiny_corpus: Path) -> None:
    source = f"data.sources.back.path={tiny_corpus}", "data.sources.back.src=de", "data.sources.back.tgt=en"
    report = check(*source, "data.sources.back.num_train_pairs=10", "data.temperature=4")
    assert report.detail("corpus", "en to de") == "160 pairs with weight 1"
    # A sixteenth of the pairs, to the power of a quarter: half as many are shown.
    assert report.detail("corpus", "de to en") == "10 pairs with weight 8"
    assert not any("swapped" in warning for warning in report.conclusion.warnings)


def test_empty_targets_are_warned_of_and_leaked_pairs_unless_they_are_removed(
    check: Check, tiny_corpus: Path, tmp_path: Path
) -> None:
    corpus = shutil.copytree(tiny_corpus, tmp_path / "corpus")
    for side in ("en", "de"):
        first = (corpus / f"test.{side}").read_text(encoding="utf-8").splitlines()[0]
        with (corpus / f"train.{side}").open("a", encoding="utf-8") as file:
            file.write(f"{first}\n")
    targets = corpus / "validation.de"
    lines = targets.read_text(encoding="utf-8").splitlines()
    targets.write_text("".join(f"{line}\n" for line in [lines[0], "", *lines[2:4], " ", *lines[5:]]))
    for options, is_due in (([], True), (["cleaning.remove_leaks=true"], False)):
        report = check(f"data.path={corpus}", *options)
        pairs, dropped = re.findall(r"^(\d+) training pairs and (\d+) dropped, ", report["corpus"].summary)[0]
        assert (int(pairs) + int(dropped), int(dropped) > 0) == (161, not is_due)
        assert any("remove_leaks: true" in warning for warning in report.conclusion.warnings) == is_due
        [warning] = [warning for warning in report.conclusion.warnings if "cannot be scored" in warning]
        assert re.search(r"validation split .* 2 empty targets, the first in pair 2", warning)
        texts = [*report.conclusion.warnings, *(value for _, value in report["corpus"].details)]
        assert sum(text.startswith("also in training: ") for text in texts) == 1


def test_an_existing_run_shows_how_much_is_done(
    check: Check, make_config: MakeConfig, tmp_path: Path
) -> None:
    needed = [check("checkpoint.keep=2")["disk"].summary]
    saved = ("training.max_steps=4", "checkpoint.every_steps=1", "checkpoint.keep=2")
    run_training(make_config(*saved), RunDirectory(tmp_path / "runs" / "tiny"))
    report = check("checkpoint.keep=2")
    assert "which exists already" in report["run"].summary
    assert "for 12 steps" in report["time"].summary
    assert report.detail("time", "done").startswith("4 steps, in ")
    assert report.conclusion.verdict == "This run can continue from step 4."
    # The disk needs no room for the checkpoints that exist.
    num_saved = len(list((tmp_path / "runs" / "tiny" / "checkpoints").glob("step_*")))
    needed.append(report["disk"].summary)
    before, after = (float(re.findall(r"up to (\S+) kB", summary)[0]) for summary in needed)
    assert after == pytest.approx(before * (4 - num_saved) / 4, rel=0.05)
    finished = check("training.max_steps=4", "data.path=/nowhere")
    assert list(finished.sections) == ["run"]
    reason = "This run is finished (training.max_steps (4) reached): to train longer, raise that limit"
    assert finished.conclusion.verdict == f"{reason}."
    cosine = (
        "schedule.kind=cosine",
        "schedule.total_steps=4",
        "schedule.warmup_steps=1",
        "training.max_steps=4",
    )
    run_training(make_config(*cosine), RunDirectory(tmp_path / "runs" / "ended"))
    verdict = check(*cosine, run="runs/ended").conclusion.verdict
    assert verdict == f"{reason} and schedule.total_steps in a new run."


DUE = [
    (["schedule.warmup_steps=20"], "(schedule.warmup_steps 20) is not over when the run ends at step 12"),
    # Half a cosine from 1 at step 5 to 0 at step 20: at 12 it is (1 + cos(7/15 pi)) / 2.
    (["schedule.kind=cosine", "schedule.total_steps=20"], "learning rate is still at 55% of its peak"),
    (
        [
            *("schedule.kind=cosine", "schedule.total_steps=6"),
            *("training.max_steps=null", "training.max_epochs=3"),
        ],
        "reaches zero at schedule.total_steps (6), but the run continues to about step",
    ),
    (["validation.every_steps=13"], "validation.every_steps (13) is more than the run's 12 steps"),
    (["data.max_length=8"], "data.max_length (8) drops "),
    (["tokenizer.min_frequency=60"], "of the words in the test"),
]  # fmt: skip


@pytest.mark.parametrize(("overrides", "sentence"), DUE)
def test_warnings_that_are_due(check: Check, overrides: list[str], sentence: str) -> None:
    assert any(sentence in warning for warning in check(*overrides).conclusion.warnings)


def spoil(what: str, run: RunDirectory, corpus: Path) -> None:
    if what == "corpus":
        for language in ("en", "de"):
            with (corpus / f"train.{language}").open("a", encoding="utf-8") as file:
                file.write("one more\n")
    elif what == "config":
        run.config_file.write_text(run.config_file.read_text().replace("d_model: 16", "d_model: 32"))
    elif what == "checkpoints":
        shutil.rmtree(run.checkpoints_dir)
    elif what == "tokenizer":
        run.src_tokenizer_file.unlink()
    else:
        for record in run.checkpoints_dir.glob("*/checkpoint.json"):
            record.write_text("{}")


@pytest.mark.parametrize("what", ["corpus", "config", "checkpoints", "tokenizer", "records"])
def test_what_keeps_training_from_resuming_keeps_the_check_from_passing(
    what: str, check: Check, make_config: MakeConfig, tiny_corpus: Path, tmp_path: Path
) -> None:
    corpus = shutil.copytree(tiny_corpus, tmp_path / "corpus")
    # In the same words, with the same path.
    run = RunDirectory(Path("runs/tiny"))
    run_training(make_config("training.max_steps=4", f"data.path={corpus}"), run)
    spoil(what, run, corpus)
    with pytest.raises(MtError) as checking:
        check(f"data.path={corpus}")
    with pytest.raises(MtError) as training:
        run_training(make_config(f"data.path={corpus}"), run)
    assert str(checking.value) == str(training.value)


def test_a_diverging_trial_ends_with_a_sentence(check: Check) -> None:
    steep = "schedule.kind=constant", "schedule.warmup_steps=0", "training.clip_norm=null"
    with pytest.raises(RunError, match=r"NaN or infinite after the first steps\. Try a lower"):
        check(*steep, "schedule.learning_rate=1e30")


def test_a_full_disk(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = 5 * 12 * sum(int(number.replace(",", "")) for _, number in check()["model"].details)
    disk = shutil.disk_usage(".")
    for free, is_due in ((needed - 1, True), (needed, False)):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: disk._replace(free=free))
        warnings = check().conclusion.warnings
        said = f"take up to {size(needed)}, but only {size(free)} are free where runs/tiny will be"
        assert any(said in warning for warning in warnings) == is_due


def test_a_run_without_a_validation_loss_to_choose_by_is_refused(
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
    reason = r"no validation loss: no validation pair .* data\.max_length \(8\)\. Raise it"
    shown: list[Section] = []
    with pytest.raises(DataError, match=reason):
        preflight(by_loss, run, shown.append)
    # What is known is shown before what fails.
    assert [section.name for section in shown] == ["run", "corpus", "vocabulary"]
    with pytest.raises(DataError, match=reason):
        prepare(by_loss, run, resuming=False)
    prepare(make_config(*short, "validation.metric=bleu"), run, resuming=False)


def test_the_guide_has_the_figures_of_the_code() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs/check.md").read_text(encoding="utf-8").split())
    words = {3: "three", 6: "six"}
    for said in (
        f"{words[NUM_SAMPLES]} sentence pairs as tokens and decoded",
        f"at most {MOST_TRAINING_PAIRS:,} training pairs, spread evenly (lengths from {PAIRS_ENCODED:,}), ",
        f"and at most {MOST_EVALUATION_PAIRS:,} pairs of a validation or test split",
        f"At most {MOST_STEPS} steps or {words[int(TIMED_SECONDS)]} seconds of training are timed",
        f"saved at {SAVED_BYTES_PER_SECOND / 1e6:.0f} MB a second",
    ):
        assert said in page
    [error] = re.findall(r"mt: (data\.path: there is no file .*?\?) ```", page)
    config = DataConfig(path="./corpora/brokn", src="en", tgt="de")
    with pytest.raises(DataError) as raised:
        load_corpus(config)
    assert str(raised.value) == error.replace(" Did you mean 'corpora/broken'?", "")


def test_the_stages_of_a_run_are_listed(make_config: MakeConfig, tiny_corpus: Path, tmp_path: Path) -> None:
    of_stages = {"first.steps": 6, "first.weights.loud": 0.5, "last.steps": 5, "last.weights.own": 0}
    options = [f"training.stages.{name}={value}" for name, value in of_stages.items()]
    sections: list[Section] = []
    config = make_config(f"data.sources.loud.path={tiny_corpus}", "training.max_steps=null", *options)
    preflight(config, tmp_path / "new", sections.append)
    [shown] = [section for section in sections if section.name == "stages"]
    assert shown.summary == "first for 6 steps, last for 5 steps"
    assert shown.details == [("first", "own 1, loud 0.5"), ("last", "own 0, loud 1")]
