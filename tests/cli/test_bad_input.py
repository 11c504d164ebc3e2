"""Bad input gives one sentence and exit code 2, and nothing that was there is lost."""

from pathlib import Path

import pytest
import torch

from mt.run_directory import RunDirectory
from tests.fixture_types import Call, Refuse


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("model.num_head=2", "unknown key 'model.num_head'. Did you mean model.num_heads?"),
        ("schedule.total_steps=many", "schedule.total_steps must be a whole number, auto or null, not many."),
        ("training.max_steps=many", "training.max_steps must be a whole number of at least 1 or null, not"),
        ("model.num_heads=3", "model.d_model (16) must be a multiple of model.num_heads (3)"),
        ("training.precision=fp16", "on this device (cpu), not in fp16"),
        ("training.compile=true", "training.compile: true does not pay on a CPU"),
        ("training.compile=yes", "training.compile must be one of auto, true, false, not yes"),
        ("data.path=./nowhere/corpus", "there is no file or folder './nowhere/corpus'"),
        ("data.tgt=en", "data.src and data.tgt are both 'en'"),
    ],
)
def test_options(override: str, says: str, refuse: Refuse, tiny_config_file: Path) -> None:
    for command in ("train", "check"):
        assert says in refuse(command, "-c", tiny_config_file, "--set", override)
    # The next attempt is not hindered by what the failed one left.
    assert not RunDirectory(Path("runs/tiny")).checkpoints_dir.exists()


def test_options_that_are_empty_or_given_twice(refuse: Refuse, tiny_config_file: Path) -> None:
    assert "--run is empty" in refuse("train", "-c", tiny_config_file, "--run", "")
    assert "--run is empty" in refuse("train", "-c", tiny_config_file, "--run=")
    assert "--run was given 2 times" in refuse("average", "--run", "a", "--run", "b")
    assert not Path("config.yaml").exists()


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (
            {"train.en": "one\ntwo\nthree\n", "train.de": "eins\nzwei\n"},
            "has 3 lines and corpus/train.de has 2",
        ),
        ({"train.jsonl": '{"en": "one", "fr": "un"}\n'}, "corpus/train.jsonl has no column 'de'"),
        ({}, "corpus contains no training split"),
    ],
    ids=["line counts", "column", "nothing"],
)
def test_corpus(files: dict[str, str], says: str, refuse: Refuse, tiny_config_file: Path) -> None:
    corpus = Path("corpus")
    corpus.mkdir()
    for name, content in files.items():
        (corpus / name).write_text(content)
    assert says in refuse("train", "-c", tiny_config_file, "--set", "data.path=corpus")
    assert says in refuse("init", "--data", "corpus", "--src", "en", "--tgt", "de")
    assert not Path("en-de.yaml").exists()


@pytest.mark.parametrize("command", [["translate", "A dog."], ["evaluate"]], ids=["translate", "evaluate"])
class TestNothingToUse:
    def test_no_run(self, command: list[str], refuse: Refuse) -> None:
        remedy = "mt init --recipe quickstart > quickstart.yaml; mt train --config quickstart.yaml"
        for sentence, says in (
            (refuse(*command), "No run in runs has a checkpoint yet. "),
            (refuse(*command, "--run", "mine"), "There is no run in mine"),
        ):
            assert says in sentence
            assert remedy in sentence

    def test_no_sound_checkpoint(self, command: list[str], refuse: Refuse, trained: RunDirectory) -> None:
        newest = trained.checkpoints_dir / "step_0000200" / "model.safetensors"
        newest.write_bytes(newest.read_bytes()[:-1])
        sentence = refuse(*command, "--checkpoint", "latest")
        assert "step_0000200 is damaged" in sentence
        assert sentence.endswith("Sound checkpoints: step_0000100, step_0000150.")
        for file in trained.checkpoints_dir.glob("step*/checkpoint.json"):
            file.write_text("{}")
        assert "There is no sound one to use instead." in refuse(*command)

    @pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
    @pytest.mark.usefixtures("trained")
    def test_no_such_device(self, command: list[str], refuse: Refuse) -> None:
        assert "no usable device 'cuda'. Choose auto or cpu" in refuse(*command, "--device", "cuda")
        assert "no usable device 'gpu'" in refuse(*command, "--device", "gpu")


@pytest.mark.parametrize("command", ["runs", "runs here", "show here", "report --run here"])
def test_a_folder_that_is_not_a_run_is_no_run(command: str, refuse: Refuse) -> None:
    Path("here").mkdir()
    assert "mt init" in refuse(*command.split())


@pytest.mark.parametrize(
    "command",
    [
        ("translate", "Anna"), ("evaluate",), ("compare", "runs/tiny", "runs/tiny"), ("score",),
        ("attention", "Anna"), ("serve", "--port", "0"), ("report",),
    ],
    ids=lambda command: command[0],
)  # fmt: skip
@pytest.mark.usefixtures("trained")
def test_no_command_takes_another_checkpoint_or_device_than_the_one_that_is_named(
    command: tuple[str, ...], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A service that is not refused would wait for requests.
    monkeypatch.setattr("mt.serving.app.serve", lambda *_, **__: None)
    for option, value, says in (
        ("--checkpoint", "step_0000042", "has no checkpoint 'step_0000042'"),
        ("--device", "gpu", "no usable device 'gpu'"),
    ):
        code, out, err = call(*command, option, value)
        assert (code, out, says in err) == (2, "", True)
