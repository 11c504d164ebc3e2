"""`mt export`, and `mt translate` with what it wrote."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mt.run_directory import RunDirectory
from mt.training.run import run_training
from tests.fixture_types import Call

ctranslate2 = pytest.importorskip("ctranslate2")

# Runs a program that may import nothing of mt and no torch.
WITHOUT = """\
import runpy, sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
del sys.argv[1]
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""
LINES = "the dog sees milk.\n\nAnna </s> buys two red äpples!\nmy aunt paints a house today.\n"
EXPORT = ("export", "--run", "runs/tiny", "--to")


def _example(folder: str, without: str, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT, without, f"{folder}/example.py", *arguments],
        input=LINES,
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
        # As on Windows: the example itself reads and writes UTF-8.
        env=os.environ | {"PYTHONIOENCODING": "cp1252"},
    ).stdout


@pytest.fixture
def exported(trained: RunDirectory, call: Call) -> str:
    """The folder of a run that translates its little language well."""
    code, out, err = call(*EXPORT, "ctranslate2", "out")
    assert code == 0, err
    assert "greedy search" in out
    assert out.endswith("out\n")
    return "out"


def test_the_folder_translates_without_mt_and_torch_as_mt_does(exported: str, call: Call) -> None:
    Path("lines.txt").write_text(LINES)
    for search in ([], ["5"]):
        options = ["--beam", "5", "--length-normalization", "mean"] if search else []
        expected = call("translate", "--run", "runs/tiny", "--file", "lines.txt", *options).out  # type: ignore[attr-defined]
        assert expected.startswith("der Hund sieht Milch.\n\nAnna")
        assert _example(exported, "mt,torch", *search) == expected
    assert "| greedy search | 12 | 12 | " in (Path(exported) / "README.md").read_text()


@pytest.mark.slow
def test_transformers_translates_without_mt_as_mt_does(trained: RunDirectory, call: Call) -> None:
    pytest.importorskip("transformers")
    code, _, err = call(*EXPORT, "transformers", "out")
    assert code == 0, err
    Path("lines.txt").write_text(LINES)
    for search in ([], ["5"]):
        options = ["--beam", "5", "--length-normalization", "mean"] if search else []
        expected = call("translate", "--run", "runs/tiny", "--file", "lines.txt", *options).out  # type: ignore[attr-defined]
        assert _example("out", "mt", *search) == expected
    code, _, err = call("translate", "--run", "out", "milk")
    assert code == 2
    assert "out was exported for transformers" in err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--sample"], "does not sample"),
        (["--precision", "bf16"], "does not compute in bf16 on cpu"),
        (["--dictionary", "terms.tsv"], "needs a model that copies unknown words"),
        (["--ensemble", "runs/tiny"], "which are for runs"),
        (["--checkpoint", "latest"], "which are for runs"),
        (["--engine", "torch"], "which are for runs"),
        (["--device", "mps"], "does not compute in auto on mps"),
    ],
)
def test_what_the_engine_cannot_do_is_refused(
    exported: str, options: list[str], named: str, call: Call
) -> None:
    Path("terms.tsv").write_text("dog\tKöter\n")
    code, out, err = call("translate", "--run", exported, *options, "the dog sees milk.")
    assert (code, out) == (2, "")
    assert named in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--min-length", "9", "--no-repeat-ngram", "1"],
        ["--prefix", "meine", "--beam", "4", "--length-normalization", "mean"],
        ["--prefix", "der Hund", "--max-length", "9"],
    ],
)
def test_constraints_and_prefixes_are_those_of_our_own_search(
    exported: str, options: list[str], call: Call
) -> None:
    """With the folder, and with the run, which is converted first."""
    Path("lines.txt").write_text("the dog sees milk.\nthe car the car the car\nmy aunt\n")
    arguments = ["--file", "lines.txt", *options]
    ours, theirs, converted = (
        call("translate", "--run", *run, *arguments)
        for run in (["runs/tiny"], [exported], ["runs/tiny", "--engine", "ctranslate2"])
    )
    assert ours[0] == 0
    assert theirs == ours
    assert converted[:2] == ours[:2]


def test_a_folder_for_another_library_is_not_translated_with(exported: str, call: Call) -> None:
    record = Path(exported) / "mt_export.json"
    values = json.loads(record.read_text()) | {"target": "transformers", "seal": "0" * 64}
    text = json.dumps(values)
    record.write_text(text.replace("0" * 64, hashlib.sha256(text.encode()).hexdigest()))
    # Which has no use for it.
    (Path(exported) / "src_tokenizer.json").unlink()
    code, _, err = call("translate", "--run", exported, "milk")
    assert (code, "was exported for transformers: load it there" in err) == (2, True)


@pytest.mark.parametrize("name", ["model.bin", "tgt_tokenizer.json", "mt_export.json"])
def test_a_damaged_folder_is_not_translated_with(exported: str, name: str, call: Call) -> None:
    file = Path(exported) / name
    content = bytearray(file.read_bytes())
    content[len(content) * 9 // 10] ^= 0x41
    file.write_bytes(content)
    code, out, err = call("translate", "--run", exported, "milk")
    assert (code, out) == (2, "")
    assert f"{exported}/" in err
    assert "Export the run again" in err
    file.unlink()
    assert call("translate", "--run", exported, "milk")[0] == 2


def test_nothing_that_exists_is_replaced(exported: str, call: Call) -> None:
    Path("thesis.txt").write_text("years of work")
    for path in (exported, "runs/tiny", "thesis.txt"):
        before = sorted(Path(path).rglob("*"))
        code, _, err = call(*EXPORT, "ctranslate2", path)
        assert (code, f"{path} exists, and nothing is replaced" in err) == (2, True)
        assert sorted(Path(path).rglob("*")) == before


def test_copying_is_named_as_what_does_not_travel_to_other_programs(
    make_config: Callable[..., object], call: Call
) -> None:
    options = ("guided_alignment=0.5", "unknown_share=0.4", "ema_decay=0.9", "max_steps=200")
    config = make_config("model.d_model=32", *(f"training.{option}" for option in options))
    run_training(config, RunDirectory(Path("runs/tiny")))  # type: ignore[arg-type]
    Path("terms.tsv").write_text("dog\tKöter\n")
    code, _, err = call(*EXPORT, "ctranslate2", "out")
    assert code == 0, err
    assert "not in the exported model" not in err
    arguments = ("--dictionary", "terms.tsv", "the 4711 sees milk.", "the dog finds the car.")
    ours, theirs = (call("translate", "--run", run, *arguments) for run in ("runs/tiny", "out"))
    assert theirs == ours
    assert "4711" in ours[1]
    assert "Köter" in ours[1]
    pytest.importorskip("transformers")
    code, _, err = call(*EXPORT, "transformers", "other")
    assert code == 0, err
    assert "not in the exported model: copying of unknown words (training.guided_alignment)" in err
    assert "copying of unknown words (training.guided_alignment)" in Path("other/README.md").read_text()


@pytest.mark.parametrize("package", ["ctranslate2", "transformers"])
def test_a_missing_package_is_named(
    package: str, trained: RunDirectory, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ("mt.export", "mt.inference.engine.", f"{package}.")
    for name in [name for name in sys.modules if name.startswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    code, _, err = call(*EXPORT, package, "out")
    assert code == 2
    what = "ctranslate2" if package == "ctranslate2" else "mt-from-scratch[transformers]"
    assert f"pip install '{what}'" in err
