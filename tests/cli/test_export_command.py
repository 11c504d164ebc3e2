"""`mt export`, and `mt translate` with what it wrote."""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mt.run_directory import RunDirectory
from mt.training.run import run_training
from tests.fixture_types import Call, MakeConfig, Refuse

ctranslate2 = pytest.importorskip("ctranslate2")

# Runs a program that may import nothing of mt and no torch.
WITHOUT = """\
import runpy, sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
del sys.argv[1]
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""
LINES = "the dog sees milk.\n\nAnna </s> buys <to:de> red äpples!\nmy aunt paints a house today.\n"
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
def exported(trained: RunDirectory, succeed: Call) -> str:
    """The folder of a run that translates its little language well."""
    _, out, err = succeed(*EXPORT, "ctranslate2", "out")
    table = (
        r" *sentences +identical +BLEU of mt +exported\n *greedy search +12 +12 .*\n *beam of 5 +12 +12 .*\n"
    )
    assert re.fullmatch(f"{table}out\n", out)
    assert err.endswith("Translate with it:  mt translate --run out --engine ctranslate2\n")
    return "out"


def assert_example_translates_as_mt_does(folder: str, without: str, succeed: Call) -> None:
    Path("lines.txt").write_text(LINES)
    for search in ([], ["5"]):
        options = ["--beam", "5", "--length-normalization", "mean"] if search else []
        expected = succeed("translate", "--run", "tiny", "--file", "lines.txt", *options).out
        assert expected.startswith("der Hund sieht Milch.\n\nAnna")
        assert _example(folder, without, *search) == expected


def test_the_folder_translates_without_mt_and_torch_as_mt_does(exported: str, succeed: Call) -> None:
    assert_example_translates_as_mt_does(exported, "mt,torch", succeed)
    assert "| greedy search | 12 | 12 | " in (Path(exported) / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
def test_transformers_translates_without_mt_as_mt_does(succeed: Call, refuse: Refuse) -> None:
    pytest.importorskip("transformers")
    succeed(*EXPORT, "transformers", "out")
    assert_example_translates_as_mt_does("out", "mt", succeed)
    assert "out was exported for transformers" in refuse("translate", "--run", "out", "milk")


@pytest.mark.usefixtures("several")
def test_the_folder_of_a_run_of_several_directions_knows_them(succeed: Call, refuse: Refuse) -> None:
    err = succeed("export", "--run", "several", "--to", "ctranslate2", "out").err
    assert err.endswith("mt translate --run out --engine ctranslate2 --to de\n")
    Path("lines.txt").write_text(LINES)
    # Of a processor that is fast at bf16, our own search would round otherwise.
    lines, translations = ("-f", "lines.txt", "--precision", "float32"), set()
    for to in ("de", "en", "loud"):
        expected = succeed("translate", "--run", "several", "--engine", "torch", "--to", to, *lines).out
        assert succeed("translate", "--run", "out", "--to", to, *lines).out == expected
        translations.add(expected)
        # It copies no unknown words, as there are in the third line.
        first, empty, _, last = _example("out", "mt,torch", "1", to).splitlines()
        assert [first, empty, last] == [expected.splitlines()[line] for line in (0, 1, 3)]
    assert len(translations) == 3
    assert "en to loud: say into which language, as by --to" in refuse("translate", "--run", "out", "x")


@pytest.mark.usefixtures("trained")
def test_checkpoint_precision_and_data_are_those_that_are_asked_for(succeed: Call) -> None:
    Path("news.jsonl").write_text('{"en": "Anna buys milk.", "de": "Anna kauft Milch."}\n' * 2)
    options = ("--checkpoint", "step_0000150", "--precision", "int8", "--data", "news.jsonl")
    assert "greedy search          2 " in succeed(*EXPORT, "ctranslate2", "out", *options).out
    record = json.loads(Path("out/mt_export.json").read_text())
    assert (record["checkpoint"], record["precision"]) == ("step_0000150", "int8")
    err = succeed(
        "translate", "--run", "out", "--beam", "2", "--n-best", "1", "--precision", "int8", "Anna"
    ).err
    assert err == "scores, computed in int8\n"
    # Without scores, nothing is said of them.
    assert succeed("translate", "--run", "out", "--precision", "int8", "Anna").err == ""


REFUSED = [
    (["--sample"], "does not sample"),
    (["--precision", "bf16"], "does not compute in bf16 on cpu"),
    (["--dictionary", "terms.tsv"], "needs a model that keeps words"),
    (["--ensemble", "runs/tiny"], "which are for runs"),
    (["--checkpoint", "latest"], "which are for runs"),
    (["--engine", "torch"], "which are for runs"),
    (["--device", "mps"], "does not compute in auto on mps"),
    (["out"], "out is a run, not a sentence: give it with --run out"),
]


def test_what_the_engine_cannot_do_is_refused(exported: str, refuse: Refuse) -> None:
    Path("terms.tsv").write_text("dog\tKöter\n")
    for options, named in REFUSED:
        assert named in refuse("translate", "--run", exported, *options, "the dog sees milk.")


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
    # Of a processor that is fast at bf16, our own search would round otherwise.
    arguments = ["--file", "lines.txt", "--precision", "float32", *options]
    ours, theirs, converted = (
        call("translate", "--run", *run, *arguments)
        for run in (["runs/tiny"], [exported], ["runs/tiny", "--engine", "ctranslate2"])
    )
    assert ours[0] == 0
    assert theirs == ours
    assert converted[:2] == ours[:2]


def test_a_folder_for_another_library_is_not_translated_with(exported: str, refuse: Refuse) -> None:
    record = Path(exported) / "mt_export.json"
    values = json.loads(record.read_text()) | {"target": "transformers", "seal": "0" * 64}
    text = json.dumps(values)
    record.write_text(text.replace("0" * 64, hashlib.sha256(text.encode()).hexdigest()))
    # Which has no use for it.
    (Path(exported) / "src_tokenizer.json").unlink()
    assert "was exported for transformers: load it there" in refuse("translate", "--run", exported, "milk")


def test_a_damaged_folder_is_not_translated_with(exported: str, refuse: Refuse) -> None:
    for name in ("model.bin", "tgt_tokenizer.json", "mt_export.json"):
        file = Path(exported) / name
        content = file.read_bytes()
        damaged = bytearray(content)
        damaged[len(content) * 9 // 10] ^= 0x41
        file.write_bytes(damaged)
        sentence = refuse("translate", "--run", exported, "milk")
        assert f"{exported}/" in sentence
        assert "Export the run again" in sentence
        file.unlink()
        refuse("translate", "--run", exported, "milk")
        file.write_bytes(content)


def test_nothing_that_exists_is_replaced(exported: str, refuse: Refuse) -> None:
    Path("thesis.txt").write_text("years of work")
    for path in (exported, "runs/tiny", "thesis.txt"):
        before = sorted(Path(path).rglob("*"))
        assert f"{path} exists, and nothing is replaced" in refuse(*EXPORT, "ctranslate2", path)
        assert sorted(Path(path).rglob("*")) == before


def test_copying_is_named_as_what_does_not_travel_to_other_programs(
    make_config: MakeConfig, call: Call, succeed: Call
) -> None:
    options = ("guided_alignment=0.5", "unknown_share=0.4", "ema_decay=0.9", "max_steps=200")
    config = make_config("model.d_model=32", *(f"training.{option}" for option in options))
    run_training(config, RunDirectory(Path("runs/tiny")))
    Path("terms.tsv").write_text("dog\tKöter\n")
    assert "not in the exported model" not in succeed(*EXPORT, "ctranslate2", "out").err
    arguments = ("--dictionary", "terms.tsv", "the 4711 sees milk.", "the dog finds the car.")
    ours, theirs = (call("translate", "--run", run, *arguments) for run in ("runs/tiny", "out"))
    assert theirs == ours
    assert "4711" in ours[1]
    assert "Köter" in ours[1]
    pytest.importorskip("transformers")
    missing = "copying of unknown words (training.guided_alignment)"
    err = succeed(*EXPORT, "transformers", "other").err
    assert f"warning: not in the exported model: {missing}" in err
    assert "--engine ctranslate2" not in err
    assert missing in Path("other/README.md").read_text()


@pytest.mark.parametrize("package", ["ctranslate2", "transformers"])
@pytest.mark.usefixtures("trained")
def test_a_missing_package_is_named(
    package: str, refuse: Refuse, remove_package: Callable[..., None]
) -> None:
    remove_package(package, "mt.export", "mt.inference.engine.")
    what = "ctranslate2" if package == "ctranslate2" else "mt-from-scratch[transformers]"
    assert f"pip install '{what}'" in refuse(*EXPORT, package, "out")
