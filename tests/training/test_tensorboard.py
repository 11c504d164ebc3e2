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
from urllib.parse import quote

import pytest

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
            layout = ask_until(port, "plugin/custom_scalars/layout", lambda layout: bool(layout))
            charts = {
                chart["title"]: {
                    tag
                    for regex in chart["multiline"]["tag"]
                    for tag in ask_until(
                        port,
                        f"plugin/custom_scalars/scalars?run=tensorboard&tag={quote(regex)}",
                        lambda found: found["regex_valid"],
                    )["tag_to_events"]
                }
                for category in layout["category"]
                for chart in category["chart"]
            }
            sessions = ask_until(
                port,
                "plugin/hparams/session_groups?request=" + quote(json.dumps(BY_BLEU)),
                lambda found: bool(found["sessionGroups"]),
            )["sessionGroups"]
        finally:
            server.terminate()
    assert set(tags["tensorboard"]) == {
        *(f"train/{name}" for name in ("loss", "learning_rate", "gradient_norm", "tokens_per_second")),
        *(f"train/{name}" for name in ("clip_norm", "update_ratio", "skipped_share", "padding_share")),
        "train/step_target_tokens",
        *(f"validation/{name}" for name in ("loss", "perplexity", "bleu", "chrf")),
        *(f"validation/{name}" for name in ("length_ratio", "unknown_share")),
        *(f"best/{name}" for name in ("loss", "bleu", "chrf")),
        *(
            f"layers/{kind}/{layer}"
            for kind in ("gradient_norm", "weight_norm")
            for layer in ("encoder.layers.0", "encoder.norm", "decoder.layers.0", "decoder.norm", *EMBEDDINGS)
        ),
    }
    logged = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    expected = {line["step"]: line["loss"] for line in logged if line["kind"] == "train"}
    assert [step for _, step, _ in losses] == list(range(1, 13))
    assert all(abs(expected[step] - loss) < 1e-5 for _, step, loss in losses)
    tags = [tag.removesuffix("/text_summary") for tag in texts["tensorboard"]]
    assert sorted(tags) == ["corpus/report", "validation/samples"]
    # The page opens with the loss, and each chart has a curve.
    assert next(iter(charts.values())) == {"train/loss", "validation/loss"}
    assert {"train/gradient_norm", "train/clip_norm"} in charts.values()
    assert all(charts.values()), charts
    [session] = sessions
    assert session["hparams"]["schedule.learning_rate"] == 0.02
    assert session["hparams"]["model.dropout"] == 0.2
    assert session["hparams"]["tokenizer.kind"] == "word"
    best = max(line["bleu"] for line in logged if line["kind"] == "validation")
    metrics = {metric["name"]["tag"]: metric["value"] for metric in session["metricValues"]}
    assert metrics["best/bleu"] == pytest.approx(best, rel=1e-5)


EMBEDDINGS = ("src_embedding", "tgt_embedding")
# What the browser sends to sort runs by their best BLEU.
BY_BLEU = {
    "experimentName": "",
    "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"],
    "colParams": [{"metric": {"group": "", "tag": "best/bleu"}, "order": "ORDER_DESC"}],
    "startIndex": 0,
    "sliceSize": 100,
}


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
