"""The public Python API: what docs/python.md shows runs as it is."""

import inspect
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import mt
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory

PAGE = Path(__file__).parent.parent / "docs" / "python.md"


def test_the_page_runs_literally(
    trained: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained.path, "runs/quickstart")
    Path("configs").mkdir()
    shutil.copy(trained.config_file, "configs/quickstart.yaml")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 8
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert names["translations"] == ["der Hund sieht ein Haus.", "Anna kauft Milch."]
    assert "der Hund sieht ein Haus." in capsys.readouterr().out
    assert "training.max_steps (10) reached" in str(vars(names["outcome"])["finished"])
    assert yaml.safe_load(Path("runs/seed2/config.yaml").read_text())["training"]["seed"] == 2


def test_importing_mt_does_not_import_torch() -> None:
    code = "import mt, sys; assert mt.__version__; print({'torch', 'pydantic', 'sacrebleu'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("name", mt.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert callable(getattr(mt, name))
    assert name in dir(mt)


def test_options_are_in_the_signatures() -> None:
    assert {"strategy", "max_length", "join_lines"} < {*inspect.signature(mt.Translator.translate).parameters}
    assert "num_best" not in inspect.signature(mt.Translator.translate).parameters
    assert "dictionary" in inspect.signature(ModelTranslator.from_run).parameters


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
@pytest.mark.parametrize("kind", [str, Path, lambda path: RunDirectory(Path(path))])
def test_a_run_is_given_by_its_path_and_a_device_by_its_name(
    kind: type, device: str | torch.device, trained: RunDirectory
) -> None:
    translator = mt.Translator.from_run(kind(str(trained.path)), device=device)
    assert translator.engine.device == "cpu"


def test_a_single_string_has_a_single_translation(trained: RunDirectory) -> None:
    translator = mt.Translator.from_run(trained)
    assert translator.translate("Anna buys milk.") == "Anna kauft Milch."
    with pytest.raises(TypeError, match="texts must be a sequence of lines, not a single string"):
        translator.n_best("Anna buys milk.")
    assert repr(translator).startswith("<Translator en to de: step_0000")
    assert "engine: torch, " in repr(translator)


def test_metrics_go_to_a_callback_as_to_tensorboard(trained: RunDirectory, tmp_path: Path) -> None:
    config = mt.load_config(trained.config_file, ["training.max_steps=20", "training.log_every_steps=10"])
    points: list[tuple[int, dict[str, float]]] = []
    outcome = mt.train(
        config, tmp_path / "new", on_metrics=lambda step, metrics: points.append((step, dict(metrics)))
    )
    assert [(step, "train/loss" in metrics, "validation/bleu" in metrics) for step, metrics in points] == [
        (10, True, False), (20, True, False), (20, False, True),
    ]  # fmt: skip
    assert repr(outcome).startswith("<Outcome: training.max_steps (20) reached, after 20 steps; best ")


def test_arguments_out_of_their_range_are_value_errors(trained: RunDirectory) -> None:
    translator = mt.Translator.from_run(trained.path, device="cpu")
    with pytest.raises(ValueError, match="shorter"):
        translator.n_best(["milk.", "the dog."], prefixes=["ein"])
    with pytest.raises(ValueError, match="size must be at least 1, not 0"):
        mt.Beam(0)
    with pytest.raises(ValueError, match="length_penalty must be finite and at least 0, not nan"):
        mt.Beam(2, length_penalty=math.nan)
    unknown: Any = "foo"
    for strategy in ("beam", mt.Beam):
        with pytest.raises(TypeError, match="strategy must be Beam"):
            translator.translate(["milk."], strategy=strategy)
    with pytest.raises(ValueError, match=r"engine must be auto, .*, not 'foo'"):
        mt.Translator.from_run(trained.path, device="cpu", engine=unknown)
    with pytest.raises(mt.MtError, match=r"not in foo\. .* such as auto"):
        mt.Translator.from_run(trained.path, device="cpu", precision=unknown)
    with pytest.raises(ValueError, match="must be 0 or above, not -1 and 0"):
        mt.Constraints(min_length=-1)
