"""`mt check`, and how `mt train` stops when its time is up, as a shell sees them."""

import math
import os
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import mt.data.prepare
from mt.cli.options import parse_duration
from mt.data.batches.batch import Batch
from mt.errors import ConfigError
from mt.training.loss import Objective
from mt.training.progress import Progress

Call = Callable[..., tuple[int, str, str]]


def test_a_kept_batch_is_looked_into(call: Call, tiny_config_file: Path) -> None:
    forward = Objective.forward

    def nan(self: Objective, batch: Batch, smoothing: float) -> torch.Tensor:
        return forward(self, batch, smoothing) * (math.nan if self.training else 1.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Objective, "forward", nan)
        code, _, err = call("train", "-c", tiny_config_file, "--set", "training.max_skipped_steps=4")
    assert code == 2
    assert "not finite in 4 steps in a row, the last at step 4. Try" in err
    (file,) = Path().glob("runs/*/bad_batches/step_0000002.json")
    assert f"is saved in {file}" in err
    code, out, err = call("check", "--batch", file)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("step 2 of ")
    assert "skipped at loss nan and gradient norm nan; replayed with step_0000003" in lines[0]
    assert "All values are finite in float32 with these weights." in lines
    (place,) = [number for number, line in enumerate(lines) if "sentence pairs, by their loss" in line]
    pairs = lines[place + 1 :]
    assert len(pairs) == 2 * int(lines[place].split()[0])
    shown = {(src[10:], tgt[10:]) for src, tgt in zip(pairs[::2], pairs[1::2], strict=True)}
    sides = [(tiny_config_file.parent / f"train.{side}").read_text().splitlines() for side in ("en", "de")]
    assert shown <= set(zip(*sides, strict=True))


def test_a_batch_of_no_run_is_a_sentence(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "bad_batches" / "step_0000001.json"
    code, _, err = call("check", "--batch", file)
    assert code == 2
    assert err.startswith(f"mt: there is no file {file}: ")
    file.parent.mkdir()
    file.touch()
    code, _, err = call("check", "--batch", file)
    assert code == 2
    assert err.startswith(f"mt: {file} is not in the folder bad_batches of a run: give its run with --run")


def test_the_device_of_a_config_is_set_in_it(call: Call, tiny_config_file: Path) -> None:
    code, out, err = call("check", "--config", tiny_config_file, "--device", "cpu")
    assert (code, out) == (2, "")
    assert "use --set training.device=..." in err


def test_a_good_config(call: Call, tiny_config_file: Path) -> None:
    code, out, err = call("check", "-c", tiny_config_file, "--set", "schedule.warmup_steps=99")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:8]] == [
        *("run", "corpus", "vocabulary", "lengths", "model", "memory", "time", "disk")
    ]
    assert "\nwarning: the warm-up (schedule.warmup_steps 99) is not over when the run ends at step 12" in out
    assert lines[-1] == "This run can begin."
    assert re.search(r"\n    decoded +\w", call("check", "-c", tiny_config_file, "-v")[1])
    assert not Path("runs").exists()
    assert call("train", "-c", tiny_config_file)[0] == 0
    assert "which exists already" in call("check", "-c", tiny_config_file)[1]


def test_the_primer_from_end_to_end(call: Call) -> None:
    config = Path("primer.yaml")
    config.write_text(
        "data: {path: builtin:primer, src: en, tgt: de, num_train_pairs: 200}\n"
        "model: {d_model: 8, num_heads: 2, d_ff: 8, num_encoder_layers: 1, num_decoder_layers: 1}\n"
        "training: {max_steps: 5, batch_tokens: 300}\n"
    )
    code, out, err = call("check", "--config", config)
    assert (code, err) == (0, "")
    assert "200 training pairs" in out
    assert re.search(r"for 5 steps, limited by training.max_steps", out)
    assert list(Path().iterdir()) == [config]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give either --config FILE, to check a run before it begins, or --batch FILE"),
        (["--config", "a.yaml", "--batch", "b.json"], "give either --config FILE"),
        (["--config", "a.yaml", "--checkpoint", "best"], "--checkpoint can only be used with --batch."),
        (["--config", "a.yaml", "--device", "cpu"], "--device can only be used with --batch."),
        (["--batch", "b.json", "--set", "training.seed=2"], "--set can only be used with --config."),
        (["--batch", "b.json", "-v"], "--verbose can only be used with --config."),
    ],
)
def test_one_thing_is_checked_at_a_time(call: Call, arguments: list[str], says: str) -> None:
    code, out, err = call("check", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"mt: {says}")
    assert err.count("\n") == 1


@pytest.fixture
def bad_corpora() -> None:
    """Small corpora with a mistake each, in the working folder, and a config for the primer."""
    my = (
        "data: {path: builtin:primer, src: en, tgt: de, num_train_pairs: 2000}\ntraining: {max_steps: 1000}\n"
    )
    files = {
        "my.yaml": my,
        "typo.yaml": my + "modle:\n  d_model: 128\n",
        "corpora/columns/train.jsonl": '{"en": "A dog.", "de": "Ein Hund."}\n',
        "corpora/misaligned/train.en": "one\ntwo\nthree\n",
        "corpora/misaligned/train.de": "eins\nzwei\n",
        "corpora/broken/train.jsonl": '{"en": "A dog.", "de": "Ein Hund."}\n{"en": "A cat.", "de"\n',
        "corpora/small/train.en": "A dog.\nA cat.\n",
        "corpora/small/train.de": "Ein Hund.\nEine Katze.\n",
    }
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("my.yaml --set training.max_step=2000", "training.max_step'. Did you mean 'max_steps'"),
        ("typo.yaml", "typo.yaml, line 3: unknown key 'modle'"),
        ("my.yaml --set training.max_steps=many", "training.max_steps must be a whole number"),
        ("my.yaml --set data.path=./corpora/brokn", "Did you mean 'corpora/broken'"),
        ("my.yaml --set data.path=corpora/columns --set data.tgt=fr", "no column 'fr'"),
        ("my.yaml --set data.path=corpora/misaligned", "train.en has 3 lines"),
        ("my.yaml --set data.path=corpora/broken", "train.jsonl, line 2"),
        ("my.yaml --set data.path=corpora/small", "too small to be split"),
        ("my.yaml --set data.max_length=4", "no training pair is left"),
        ("my.yaml --set tokenizer.min_frequency=100000", "tokenizer.min_frequency). Lower it"),
        ("my.yaml --set training.max_steps=null", "nothing ends this run: set training.max_steps"),
        ("my.yaml --set model.num_heads=6", "must be a multiple of model.num_heads (6)"),
        ("my.yaml --set model.share_embeddings=true", "needs tokenizer.shared: true"),
    ],
)
@pytest.mark.usefixtures("bad_corpora")
def test_bad_configs_are_a_sentence(call: Call, arguments: str, says: str) -> None:
    code, _, err = call("check", "--config", *shlex.split(arguments))
    assert code == 2
    assert err.startswith("mt: ")
    assert err.count("\n") == 1
    assert says in err


@pytest.mark.parametrize(("command", "codes"), [("train", (0, 2, 75, 130, 138, 143)), ("check", (0, 2, 130))])
def test_the_exit_codes_stand_each_on_its_line(
    command: str, codes: tuple[int, ...], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    code, out, _ = call(command, "--help")
    assert code == 0
    lines = [line.strip() for line in out.splitlines()]
    for number in codes:
        (line,) = [line for line in lines if line.split(" ")[0] == str(number)]
        assert line.endswith(".")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("45m", 2700), ("3h50m", 13800), ("1d2h", 93600), ("1d1h1m1s", 90061), ("0h1s", 1)],
)
def test_times(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "90", "0s", "0d0h", "36501d", "50m3h", "3 h", "-1h", "1.5h", "3H", "1h1h", "٣h"]
)
def test_what_is_not_a_time(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a duration\. Write it as 90s, 45m, 3h50m or 1d2h"):
        parse_duration(text)


def test_time_that_is_up_is_answered_with_75(call: Call, tiny_config_file: Path) -> None:
    show_step = Progress.step

    def ring(self: Progress, *arguments: object, **named: object) -> None:
        show_step(self, *arguments, **named)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGALRM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "step", ring)
        code, _, err = call("train", "-c", tiny_config_file, "--max-time", "1h")
    assert code == 75
    assert "Stopped at step 1, saved: the time is up." in err
    assert "The same command resumes the run." in err
    assert call("train", "-c", tiny_config_file, "--max-time", "1h")[0] == 0
    code, _, err = call("train", "-c", tiny_config_file, "--max-time", "soon")
    assert code == 2
    assert err.startswith("mt: --max-time: 'soon' is not a duration.")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_while_data_is_loaded(
    number: signal.Signals, call: Call, tiny_config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mt.data.prepare, "load_corpus", lambda *_: os.kill(os.getpid(), number))
    code, _, err = call("train", "-c", tiny_config_file)
    assert code == 128 + number
    assert f"Stopped before the first step: {number.name}." in err
    assert "The same command resumes the run." in err
    assert "Traceback" not in err
