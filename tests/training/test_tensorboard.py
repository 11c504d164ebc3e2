"""The real TensorBoard server, asked what a browser would ask it."""

import html
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from mt.config.config import Config
from mt.display import markdown_table, markdown_text

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Of a library that TensorBoard carries.
    from tensorboard.plugin_util import markdown_to_safe_html  # type: ignore[import-untyped]


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
            losses = ask_until(
                port, "plugin/scalars/scalars?run=tensorboard&tag=train/loss", lambda rows: len(rows) >= 12
            )
            texts = ask_until(port, "plugin/text/tags", lambda tags: bool(tags))
            sessions = ask_until(
                port,
                "plugin/hparams/session_groups?request=" + quote(json.dumps(BY_BLEU)),
                lambda found: bool(found["sessionGroups"]),
            )["sessionGroups"]
        finally:
            server.terminate()
    logged = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    expected = {line["step"]: line["loss"] for line in logged if line["kind"] == "train"}
    assert [step for _, step, _ in losses] == list(range(1, 13))
    assert all(abs(expected[step] - loss) < 1e-5 for _, step, loss in losses)
    tags = [tag.removesuffix("/text_summary") for tag in texts["tensorboard"]]
    assert sorted(tags) == ["corpus/report", "validation/samples"]
    [session] = sessions
    assert session["hparams"]["schedule.learning_rate"] == 0.02
    assert session["hparams"]["model.dropout"] == 0.2
    assert session["hparams"]["tokenizer.kind"] == "word"
    newest = [line["bleu"] for line in logged if line["kind"] == "validation"][-1]
    metrics = {metric["name"]["tag"]: metric["value"] for metric in session["metricValues"]}
    assert metrics["validation/bleu"] == pytest.approx(newest, rel=1e-5)


# What the browser sends to sort runs by their newest BLEU.
BY_BLEU = {
    "experimentName": "",
    "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"],
    "colParams": [{"metric": {"group": "", "tag": "validation/bleu"}, "order": "ORDER_DESC"}],
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


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "a | b || c |",
        "</td></tr></table><h1>owned</h1>",
        "**bold** [click](javascript:alert(1)) `code` | --- | \\| ~~~",
        "\x1b]0;owned\x07 \x1b[2J",
        "two\nlines\n\n# head",
        "&lt;b&gt; &amp;",
    ],
)
def test_hostile_text_is_shown_as_text(text: str) -> None:
    """In the table of samples, as TensorBoard turns it into HTML."""
    visible = "".join(each if each.isprintable() or each == "\n" else f"\\x{ord(each):02x}" for each in text)
    shown = markdown_to_safe_html(markdown_table(("source", "translation"), [[markdown_text(text)] * 2]))
    cells = re.findall(r"<td>(.*?)</td>", shown)
    assert len(cells) == 2
    for cell in cells:
        assert "<" not in cell
        assert html.unescape(cell).split() == visible.split()
