"""A run directory made by a stranger: read as data, never executed, never a way out of the folder."""

import json
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import mt
from mt.checkpoint.record import RECORD, record_text
from mt.checkpoint.store import CheckpointStore
from mt.checkpoint.training_state import SavedTraining
from mt.config.load import load_config
from mt.errors import CheckpointError, ConfigError, DataError, LinesError, MtError, RunError
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.special_tokens import SPECIAL_TOKENS
from mt.training.run import run_training

CPU = torch.device("cpu")


@pytest.fixture
def run(trained: RunDirectory) -> RunDirectory:
    """A trained run, with a folder beside it that nobody may touch."""
    (trained.path.parent / "precious").mkdir()
    (trained.path.parent / "precious" / "letter.txt").write_text("keep")
    return trained


def outside(run: RunDirectory) -> dict[str, bytes | None]:
    """Everything beside the run: names and contents."""
    around = run.path.parent
    paths = [path for path in around.rglob("*") if not path.is_relative_to(run.path)]
    return {str(path): path.read_bytes() if path.is_file() else None for path in paths}


def set_option(run: RunDirectory, key: str, value: object) -> None:
    """Change the first line of the run's config that has this key."""
    text = run.config_file.read_text()
    old = next(line for line in text.splitlines() if line.startswith(f"  {key}:"))
    run.config_file.write_text(text.replace(old, f"  {key}: {value}", 1))


@pytest.mark.parametrize(
    "target", ["../../other/checkpoints/step_0000200", "/etc", "..", "step_0000200/../../..", "\0"]
)
def test_a_pointer_leads_nowhere_else(run: RunDirectory, target: str) -> None:
    shutil.copytree(run.path, run.path.parent / "other")
    (run.checkpoints_dir / "best").write_text(target + "\n")
    with pytest.raises(CheckpointError, match="the file is missing or does not name one"):
        ModelTranslator.from_run(run, device=CPU)
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        CheckpointStore(run.checkpoints_dir).require(target)


@pytest.mark.parametrize(
    "line",
    [
        "path: !!python/object/apply:os.mkdir [executed]",
        "path: &a [*a]",
        "path: *a",
        "? !!python/name:os.mkdir",
    ],
)
def test_a_config_is_not_executed(
    run: RunDirectory, line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    run.config_file.write_text(f"data:\n  {line}\n  src: en\n  tgt: de\n")
    with pytest.raises(ConfigError, match=r"config\.yaml, line 2: "):
        ModelTranslator.from_run(run, device=CPU)
    assert not (tmp_path / "executed").exists()


def test_a_corpus_elsewhere_is_read_and_nothing_is_written_there(run: RunDirectory) -> None:
    """Where the corpus stands, a config says freely; what is made of it stays in the run."""
    corpus = run.path.parent / "precious" / "corpus"
    corpus.mkdir()
    for name in ("train", "validation", "test"):
        (corpus / f"{name}.jsonl").write_text('{"en": "the dog sees milk.", "de": "der Hund sieht Milch."}\n')
    set_option(run, "path", f'"{corpus}"')
    before = outside(run)
    evaluation = mt.evaluate(run, split="test", checkpoint="best", device=CPU)
    assert evaluation.num_sentences == 1
    assert outside(run) == before


@pytest.mark.parametrize("path", ["/etc/passwd", "/dev/zero", "/proc/self/mem", "/", "~root"])
def test_a_path_that_is_not_a_corpus_is_refused(run: RunDirectory, path: str) -> None:
    set_option(run, "path", f'"{path}"')
    with pytest.raises(DataError):
        mt.evaluate(run, split="test", checkpoint="best", device=CPU)


@pytest.mark.parametrize("file", ["config.yaml", "src_tokenizer.json", "checkpoints/best"])
@pytest.mark.parametrize("content", [b"", b"\0" * 1000, b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000])
def test_files_that_are_something_else_are_reported_in_a_sentence(
    run: RunDirectory, file: str, content: bytes
) -> None:
    (run.path / file).write_bytes(content)
    with pytest.raises(MtError, match=Path(file).name):
        ModelTranslator.from_run(run, device=CPU)


def test_a_vocabulary_that_does_not_fit_the_weights_is_refused(run: RunDirectory) -> None:
    content = json.loads(run.src_tokenizer_file.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["more"] = len(vocabulary)
    run.src_tokenizer_file.write_text(json.dumps(content))
    # As in the first checkpoints, which say nothing of their tokenizers.
    checkpoint = CheckpointStore(run.checkpoints_dir).require("best")
    (checkpoint.folder / RECORD).write_text(record_text(replace(checkpoint, tokenizers={})))
    with pytest.raises((CheckpointError, DataError)):
        ModelTranslator.from_run(run, device=CPU)


@pytest.mark.parametrize("file", ["src_tokenizer.json", "tgt_tokenizer.json"])
def test_a_tokenizer_in_which_one_word_is_another_is_refused(run: RunDirectory, file: str) -> None:
    path = run.path / file
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["another"] = vocabulary.pop(next(iter(vocabulary.keys() - set(SPECIAL_TOKENS))))
    path.write_text(json.dumps(content))
    with pytest.raises(RunError, match=f"{file[:3]} tokenizer in .* is not the one that step_"):
        ModelTranslator.from_run(run, device=CPU)
    config = load_config(run.config_file)
    with pytest.raises(RunError, match="is not the one that step_"):
        run_training(config, run)


def forget_computation(run: RunDirectory) -> None:
    """As in the first checkpoints, which say nothing of their options."""
    checkpoint = CheckpointStore(run.checkpoints_dir).require("best")
    (checkpoint.folder / RECORD).write_text(record_text(replace(checkpoint, computation={})))


@pytest.mark.parametrize(
    ("key", "value"), [("num_heads", 4), ("activation", "gelu"), ("norm_first", "false"), ("max_length", 17)]
)
def test_an_option_that_changes_what_the_weights_compute_is_refused(
    run: RunDirectory, key: str, value: object
) -> None:
    set_option(run, key, value)
    with pytest.raises(RunError, match=rf"config\.yaml is not the config that step_.*\.{key} is "):
        ModelTranslator.from_run(run, device=CPU)
    # Not even where the command line agrees with it.
    with pytest.raises(RunError, match=rf"\.{key} is "):
        run_training(load_config(run.config_file), run)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("d_model", 65_536),
        ("d_ff", 10**12),
        ("num_decoder_layers", 1000),
    ],
)
def test_sizes_that_the_weights_do_not_have_are_refused_before_memory_is_taken(
    run: RunDirectory, key: str, value: int
) -> None:
    forget_computation(run)
    set_option(run, key, value)
    with few_bytes(), pytest.raises(CheckpointError, match=r"step_.* does not match .*config\.yaml"):
        ModelTranslator.from_run(run, device=CPU)


@contextmanager
def few_bytes() -> Iterator[None]:
    """Let this process have no more than half a gigabyte of addresses besides those that it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**29, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_weights_that_overflow_are_refused(run: RunDirectory) -> None:
    store = CheckpointStore(run.checkpoints_dir)
    best = store.require("best")
    huge = {name: weight * 1e20 for name, weight in store.load_model(best).items()}
    huge_one = replace(best, step=best.step + 100, best=True, computation={})
    name = store.save(huge_one, huge, SavedTraining({}, {}), keep=9).name
    with pytest.raises(LinesError, match="logits in float32 are NaN or infinite"):
        ModelTranslator.from_run(run, checkpoint=name, device=CPU).translate(["milk"])
