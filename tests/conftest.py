"""A tiny parallel corpus, a tiny config for it, and a run that was trained with that in two seconds."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.plugin_event_accumulator import (  # type: ignore[import-untyped]
    EventAccumulator,
)
from tensorboard.summary.writer import event_file_writer  # type: ignore[import-untyped]
from tensorboard.util.tensor_util import make_ndarray  # type: ignore[import-untyped]

from mt.config.config import Config
from mt.config.load import load_config
from mt.data.batches.batch import Batch
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory
from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis
from mt.search.request import SearchRequest, TeacherForced
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from mt.training.progress import Progress
from mt.training.run import Outcome, run_training
from tests.fixture_types import MakeConfig, TrainUntil
from tests.processes import Popen, environment
from tests.tiny import tiny_pairs

pytest_plugins = ["tests.preflight.untimed"]

CONFIG = """\
data: {{path: "{corpus}", src: en, tgt: de, max_length: 16}}
tokenizer: {{min_frequency: 1}}
model: {{d_model: 16, num_heads: 2, d_ff: 32, num_encoder_layers: 1, num_decoder_layers: 1, dropout: 0.2}}
schedule: {{learning_rate: 0.02, warmup_steps: 5}}
training: {{device: cpu, max_steps: 12, batch_tokens: 100, num_micro_batches: 2, log_every_steps: 1}}
validation: {{every_steps: 4, num_samples: 2, batch_sentences: 8}}
checkpoint: {{every_steps: 3, keep: 3}}
"""


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """So that the processes of a parallel test run do not fight for the cores."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def kernels_of_a_cpu() -> Iterator[None]:
    """A test that chooses a CUDA device turns flash attention off, which CPUs have as well."""
    yield
    torch.backends.cuda.enable_flash_sdp(True)


@pytest.fixture(scope="session", autouse=True)
def signals_as_in_a_terminal() -> None:
    """Also where the tests run in the background or under nohup, so that SIGINT or SIGHUP are ignored.

    A process that the tests start inherits what is ignored, and nothing else.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """So that no test reads or writes the user's; processes that tests start have it too."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("MT_CACHE", str(folder))
        # The fast engine is only used by the tests that are about it.
        patch.setenv("MT_ENGINE", "torch")
        yield folder


@pytest.fixture(scope="session", autouse=True)
def spare_the_disk() -> Iterator[None]:
    """No test pulls the plug; each training waits eighty times for the disk; some tests count the calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session", autouse=True)
def event_files_in_order() -> None:
    """TensorBoard reads event files by second, process and counter, as text; here one second sees many."""
    event_file_writer._global_uid = event_file_writer.AtomicCounter(1_000_000)


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of parallel text; ``zebra`` and ``Zebra`` stand in the validation and test splits alone."""
    folder = tmp_path_factory.mktemp("corpus")
    pairs = tiny_pairs()
    unseen = [("the zebra sees milk.", "das Zebra sieht Milch.")]
    splits = {"train": pairs[:160], "validation": pairs[160:171] + unseen, "test": pairs[171:] + unseen}
    for split, rows in splits.items():
        for column, language in enumerate(("en", "de")):
            lines = "".join(row[column] + "\n" for row in rows)
            (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture
def forty(tmp_path: Path, tiny_corpus: Path) -> Path:
    """Forty pairs that the tiny run was trained on."""
    folder = tmp_path / "forty"
    folder.mkdir()
    for side in ("en", "de"):
        lines = (tiny_corpus / f"train.{side}").read_text(encoding="utf-8").splitlines()[:40]
        (folder / f"test.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny_config_file(tiny_corpus: Path) -> Path:
    """The config file of a run of a second, with dropout and with two micro-batches a step."""
    file = tiny_corpus / "tiny.yaml"
    file.write_text(CONFIG.format(corpus=tiny_corpus), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def make_config(tiny_config_file: Path) -> MakeConfig:
    """The tiny config with overrides, written as after ``--set``."""

    def make(*overrides: str) -> Config:
        return load_config(tiny_config_file, overrides)

    return make


@pytest.fixture(scope="session")
def _trained(make_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "tiny"
    config = make_config(
        "training.max_steps=200",
        "training.log_every_steps=20",
        "validation.every_steps=100",
        "checkpoint.every_steps=50",
        "model.d_model=32",
        "model.dropout=0.1",
    )
    run_training(config, RunDirectory(path))
    return path


@pytest.fixture
def trained(_trained: Path, tmp_path: Path) -> RunDirectory:
    """A finished run of 200 steps that translates its little language well; a copy for each test."""
    return RunDirectory(Path(shutil.copytree(_trained, tmp_path / "runs" / "tiny")))


@pytest.fixture(scope="session")
def converted(_trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished run whose best checkpoint has its engine; not to be changed."""
    path = Path(shutil.copytree(_trained, tmp_path_factory.mktemp("converted") / "tiny"))
    Translator.from_run(path, engine="ctranslate2")
    return path


@pytest.fixture
def scored_as_in_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets given translations share the probability of what search never writes, as those of a search do."""

    def log_probs(model: TeacherForced, batch: Batch) -> torch.Tensor:
        logits = model.forward(batch.src_ids, batch.src_mask, batch.tgt_ids, batch.tgt_mask).float()
        logits[..., [PAD_ID, UNK_ID, BOS_ID]] = -torch.inf
        return logits.log_softmax(-1).gather(-1, batch.labels[..., None])[..., 0]

    monkeypatch.setattr("mt.inference.torch_engine.label_log_probs", log_probs)


@pytest.fixture
def train_until(monkeypatch: pytest.MonkeyPatch) -> TrainUntil:
    """Trains to the end, or sends this process SIGTERM after ``step``, or lets it ``crash`` there."""

    def train(config: Config, path: Path, *, step: int | None = None, crash: bool = False) -> Outcome | None:
        show_step = Progress.step

        def end_at(self: Progress, result: Any) -> None:
            show_step(self, result)
            if result.counters.step == step and crash:
                raise CrashError
            if result.counters.step == step:
                os.kill(os.getpid(), signal.SIGTERM)

        with monkeypatch.context() as patch:
            patch.setattr(Progress, "step", end_at)
            try:
                return run_training(config, RunDirectory(path))
            except CrashError:
                return None

    return train


@pytest.fixture
def start_endless(make_config: MakeConfig, tmp_path: Path) -> Callable[..., Popen]:
    """Starts ``mt COMMAND --run RUN ARGUMENTS`` on two threads, with a run whose searches take minutes.

    Each step takes half a second whatever the machine, and no sentence ends before its limit. Each step says
    on stderr that it has begun.
    """
    run = tmp_path / "endless"
    run_training(make_config("training.max_steps=1", "data.max_length=1000"), RunDirectory(run))
    code = f"""
import sys, threading, time, torch
from mt.__main__ import main
from mt.transformer.transformer import Transformer
step = Transformer.decode_step
def slow_step(*arguments, **options):
    print("searching in", threading.current_thread().name, file=sys.stderr, flush=True)
    time.sleep(0.5)
    logits, scores = step(*arguments, **options)
    logits[:, {EOS_ID}] = -100.0
    return logits, scores
Transformer.decode_step = slow_step
torch.set_num_threads(2)
main()
"""

    def start(command: str, *arguments: str | Path) -> Popen:
        return Popen(
            [sys.executable, "-c", code, command, "--run", str(run), *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )

    return start


class CrashError(BaseException):
    """Stands for a process that is killed, which reports nothing."""


@pytest.fixture(scope="session")
def read_metrics() -> Callable[[Path], list[dict[str, float | str]]]:
    """The lines of ``metrics.jsonl`` without what the clock says."""

    def read(file: Path) -> list[dict[str, float | str]]:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        return [
            {k: v for k, v in line.items() if k not in {"minutes", "tokens_per_second"}} for line in lines
        ]

    return read


@pytest.fixture(scope="session")
def read_curves() -> Callable[[Path], dict[str, list[tuple[int, object]]]]:
    """What TensorBoard shows of a folder by tag, as (step, value), text in bytes; of speeds the step only."""

    def read(folder: Path) -> dict[str, list[tuple[int, object]]]:
        events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
        events.Reload()
        return {
            tag: [
                (
                    event.step,
                    None if "per_second" in tag else next(iter(make_ndarray(event.tensor_proto).flat), None),
                )
                for event in events.Tensors(tag)
            ]
            for tag in events.Tags()["tensors"]
        }

    return read


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets greedy search run out of memory with sentences of more than eight tokens, including EOS."""

    def search(model: Any, request: SearchRequest) -> list[Hypothesis]:
        if request.src_ids.size(1) > 8:
            raise torch.OutOfMemoryError("out of memory")
        return greedy_search(model, request)

    monkeypatch.setattr("mt.inference.torch_engine.greedy_search", search)


@pytest.fixture(scope="session")
def three_ways(
    make_config: MakeConfig, tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> RunDirectory:
    """A run that translates its little language in both directions, and shouts; not to be changed."""
    folder = tmp_path_factory.mktemp("three ways")
    for split in ("train", "validation", "test"):
        shutil.copy(tiny_corpus / f"{split}.en", folder)
        german = (tiny_corpus / f"{split}.de").read_text(encoding="utf-8")
        (folder / f"{split}.loud").write_text(german.upper(), encoding="utf-8")
    config = make_config(
        "training.max_steps=400",
        "validation.every_steps=200",
        "validation.over=all",
        "checkpoint.every_steps=200",
        "model.d_model=48",
        "tokenizer.shared=true",
        "training.guided_alignment=0.5",
        f"data.sources.back.path={tiny_corpus}",
        "data.sources.back.src=de",
        "data.sources.back.tgt=en",
        f"data.sources.shout.path={folder}",
        "data.sources.shout.tgt=loud",
    )
    run_training(config, RunDirectory(folder / "run"))
    return RunDirectory(folder / "run")


@pytest.fixture
def several(three_ways: RunDirectory, tmp_path: Path) -> RunDirectory:
    """The same run; a copy for each test."""
    return RunDirectory(Path(shutil.copytree(three_ways.path, tmp_path / "runs" / "several")))
