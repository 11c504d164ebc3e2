"""`mt export`, and `mt translate` with what it wrote."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from mt.run_directory import RunDirectory
from mt.training.run import run_training

ctranslate2 = pytest.importorskip("ctranslate2")
Call = Callable[..., tuple[int, str, str]]

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
    card = (Path(exported) / "README.md").read_text()
    assert "| greedy search | 12 | 12 | " in card
    assert "| beam of 5 | 12 | 12 | " in card
    assert "# tiny: en to de" in card
    assert "copying" not in card


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


@pytest.mark.parametrize("options", [[], ["--beam", "3", "--max-length", "4"]])
def test_the_engine_has_the_input_and_output_of_our_own_search(
    exported: str, options: list[str], call: Call
) -> None:
    Path("lines.txt").write_text(f"{LINES}{'the dog. ' * 8}\n{'milk ' * 40}\n")
    arguments = ["--file", "lines.txt", "--on-error", "empty", *options]
    ours = call("translate", "--run", "runs/tiny", *arguments)
    theirs = call("translate", "--run", exported, "--engine", "ctranslate2", *arguments)
    assert theirs == ours
    assert "1 line could not be translated" in ours[2]
    ours = call("translate", "--run", "runs/tiny", "--file", "lines.txt")
    assert call("translate", "--run", exported, "--file", "lines.txt") == ours
    assert ours[0] == 2


class OfAGpu:
    """CTranslate2's translator as on a machine with a GPU, on which it fails as ``why_not`` says."""

    def __init__(
        self, real: Callable[..., object], device: str, why_not: Callable[[list[list[str]]], str | None]
    ) -> None:
        self.device = "cpu" if device == "cpu" else "cuda"
        self.compute_type = "float32"
        self.num_active_batches = 0
        self._real = real(device="cpu", compute_type="float32")
        self._why_not = why_not

    def translate_batch(
        self, sources: list[list[str]], *, asynchronous: bool = False, **options: object
    ) -> object:
        def fail() -> None:
            raise RuntimeError(reason)

        reason = self._why_not(sources) if self.device == "cuda" else None
        if reason and not asynchronous:
            fail()
        if reason:
            return [SimpleNamespace(result=fail, done=lambda: True)] * len(sources)
        return self._real.translate_batch(sources, asynchronous=asynchronous, **options)  # type: ignore[attr-defined]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a GPU into this machine, on which CTranslate2 fails as the argument says."""

    def put(why_not: Callable[[list[list[str]]], str | None]) -> None:
        real = ctranslate2.Translator
        monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
        monkeypatch.setattr(
            ctranslate2,
            "Translator",
            lambda folder, *, device, compute_type, **options: OfAGpu(
                partial(real, folder, **options), device, why_not
            ),
        )

    return put


def test_a_batch_too_large_for_the_memory_of_ctranslate2_is_split_and_a_sentence_is_a_bad_line(
    exported: str, gpu: Callable[..., None], call: Call
) -> None:
    file = Path("lines.txt")
    file.write_text("the dog sees milk.\nAnna sees milk.\nmy aunt finds the car today.\n")
    gpu(lambda sources: "CUDA failed with error out of memory" if len(sources) > 1 else None)
    code, out, err = call("translate", "--run", exported, "--file", file)
    assert (code, out.splitlines()[1]) == (0, "Anna sieht Milch.")
    assert "out of memory: a batch of 3 sentences was split in two" in err
    gpu(lambda sources: "mkl_malloc: failed to allocate memory" if len(sources[0]) > 5 else None)
    code, out, err = call("translate", "--run", exported, "--file", file)
    assert (code, out) == (2, "der Hund sieht Milch.\nAnna sieht Milch.\n")
    assert "lines.txt, line 3 has a sentence of 7 tokens that does not fit into memory" in err
    assert "--device cpu" in err


def test_without_the_libraries_of_the_gpu_the_cpu_is_named(
    exported: str, gpu: Callable[..., None], call: Call
) -> None:
    gpu(lambda sources: "Library libcublas.so.12 is not found or cannot be loaded")
    code, out, err = call("translate", "--run", exported, "the dog sees milk.")
    assert (code, out) == (2, "")
    assert "CTranslate2 cannot compute on cuda: Library libcublas.so.12 is not found" in err
    assert "--device cpu" in err


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


def test_only_an_earlier_export_to_which_nothing_was_added_is_replaced(exported: str, call: Call) -> None:
    (Path(exported) / "README.md").write_text("old")
    assert call(*EXPORT, "ctranslate2", "--precision", "bf16", exported)[0] == 0
    assert json.loads((Path(exported) / "mt_export.json").read_text())["precision"] == "bf16"
    assert (Path(exported) / "README.md").read_text() != "old"
    Path("mine").mkdir()
    for name in (f"{exported}/notes.txt", "mine/thesis.txt"):
        Path(name).write_text("years of work")
    for folder, reason in (
        (exported, f"{exported}/notes.txt is not part of the earlier export"),
        ("mine", "mine exists and is not an earlier export"),
        ("runs/tiny", "is not an earlier export"),
    ):
        before = sorted(Path(folder).rglob("*"))
        code, _, err = call(*EXPORT, "ctranslate2", folder)
        assert (code, reason in err, sorted(Path(folder).rglob("*"))) == (2, True, before)


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


def test_a_corpus_that_is_gone_can_be_named(
    trained: RunDirectory, tiny_corpus: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = trained.config_file
    shutil.copytree(tiny_corpus, "elsewhere")
    file.write_text(file.read_text().replace(str(tiny_corpus), "/nowhere"))
    assert call(*EXPORT, "ctranslate2", "out")[0] == 2
    assert not Path("out").exists()
    code, _, err = call(*EXPORT, "ctranslate2", "--data", "elsewhere", "out")
    assert code == 0, err


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
