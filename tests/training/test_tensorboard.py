"""The real TensorBoard server, asked what a browser would ask it."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mt.config.config import Config


def test_the_server_shows_one_curve_of_a_run_that_crashed_and_went_on(
    make_config: Callable[..., Config], train_until: Callable[..., object], tmp_path: Path
) -> None:
    path = tmp_path / "run"
    # Step 3 is the last that was saved before the crash: steps 4 to 7 are taken, and logged, twice.
    train_until(make_config("validation.every_steps=100"), path, step=5, crash=True)
    train_until(make_config(), path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["-m", "tensorboard.main", "--logdir", str(path), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    ) as server:
        try:
            assert ask_until(port, "runs", lambda runs: bool(runs)) == ["tensorboard"]
            tags = ask_until(port, "plugin/scalars/tags", lambda tags: "validation/bleu" in str(tags))
            losses = ask_until(
                port, "plugin/scalars/scalars?run=tensorboard&tag=train/loss", lambda rows: len(rows) >= 12
            )
            texts = ask_until(port, "plugin/text/tags", lambda tags: bool(tags))
        finally:
            server.terminate()
    assert set(tags["tensorboard"]) == {
        *(f"train/{name}" for name in ("loss", "learning_rate", "gradient_norm", "tokens_per_second")),
        *(f"validation/{name}" for name in ("loss", "perplexity", "bleu", "chrf")),
    }
    logged = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    expected = {line["step"]: line["loss"] for line in logged if line["kind"] == "train"}
    assert [step for _, step, _ in losses] == list(range(1, 13))
    assert all(abs(expected[step] - loss) < 1e-5 for _, step, loss in losses)
    tags = [tag.removesuffix("/text_summary") for tag in texts["tensorboard"]]
    # As many samples as validation.num_samples.
    assert sorted(tags) == ["corpus/report", "samples/1", "samples/2"]


def ask_until(port: int, what: str, is_there: Callable[[Any], bool]) -> Any:
    """Ask again until the server is up and has read its files."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/data/{what}", timeout=10) as answer:
                found = json.load(answer)
        except (urllib.error.URLError, ConnectionError):
            found = None
        if found is not None and is_there(found):
            return found
        time.sleep(0.2)
    raise AssertionError(f"no good answer to {what}: {found}")
