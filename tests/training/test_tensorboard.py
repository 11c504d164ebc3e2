"""What TensorBoard shows of a run: first what matters most, once, and the text of its samples."""

import html
import re
import warnings
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
    EventAccumulator,
)
from tensorboard.plugins.hparams import metadata  # type: ignore[import-untyped]

from mt.display import markdown_table, markdown_text
from tests.training.steps import Training

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Of a library that TensorBoard carries.
    from tensorboard.plugin_util import markdown_to_safe_html  # type: ignore[import-untyped]


def test_scores_losses_and_often_varied_options_are_shown_first_and_once(
    train: Training, tmp_path: Path
) -> None:
    train.crash(step=5, into=tmp_path / "run")
    train(into=tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run/tensorboard")).Reload()
    content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    options = metadata.parse_session_start_info_plugin_data(content).hparams
    assert options["learning_rate"].number_value == 0.02
    assert options["tokenizer.kind"].string_value == "word"
    # TensorBoard sorts by name, shows five options and five metrics, and opens two groups of charts.
    assert sorted(options)[:4] == ["batch_tokens", "dropout", "label_smoothing", "learning_rate"]
    assert sorted(events.Tags()["scalars"] + events.Tags()["images"])[:5] == [
        "learning/train_loss",
        *(f"learning/validation_{name}" for name in ("bleu", "chrf", "loss", "perplexity")),
    ]


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
