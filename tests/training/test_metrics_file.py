"""Metrics are read back as they were written; what is not a figure is left out, and the rest is kept."""

import json
import math
from pathlib import Path

from mt.training.metrics_file import read_points


def test_points_have_their_figures_and_their_line(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    whole = '{"step": 2, "minutes": 0.5, "kind": "train", "loss": 3, "gradient_norm": null}'
    spoilt = '{"step": 3, "kind": "train", "loss": NaN, "bleu": "high", "chrf": true, "minutes": 1.0}'
    file.write_text(f"{whole}\n{spoilt}\n")
    one, other = read_points(file)
    assert (one.step, one.kind, one["minutes"], one["loss"], one.text) == (2, "train", 0.5, 3.0, whole)
    assert math.isnan(one["gradient_norm"])
    assert other.figures == {"minutes": 1.0}
    assert json.loads(other.text) == {"step": 3, "kind": "train", "minutes": 1.0}


def test_a_missing_file_has_no_points(tmp_path: Path) -> None:
    assert read_points(tmp_path / "metrics.jsonl") == []
