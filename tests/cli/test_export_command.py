"""`mt export`, and `mt translate` with what it wrote."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from mt.errors import CheckpointError
from mt.run_directory import RunDirectory
from mt.training.run import run_training

ctranslate2 = pytest.importorskip("ctranslate2")
ctranslate2_engine = pytest.importorskip("mt.inference.ctranslate2_engine")
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
    assert len((Path(exported) / "example.py").read_text().splitlines()) <= 22


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


def test_the_model_card_has_the_figures(exported: str) -> None:
    card = (Path(exported) / "README.md").read_text()
    assert "| greedy search | 12 | 12 | 0 | 12 |" in card
    assert "| beam of 5 | 12 | 12 | 0 |" in card
    assert "# tiny: en to de" in card
    assert "copying" not in card


@pytest.mark.parametrize("options", [[], ["--beam", "5"], ["--beam", "3", "--max-length", "4"]])
def test_the_engine_has_the_input_and_output_of_our_own_search(
    exported: str, options: list[str], call: Call
) -> None:
    Path("lines.txt").write_text(f"{LINES}{'the dog. ' * 8}\n{'milk ' * 40}\n")
    arguments = ["--file", "lines.txt", "--on-error", "copy", *options]
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
        self._real = real(device="cpu")
        self._why_not = why_not

    def translate_batch(self, sources: list[list[str]], **options: object) -> object:
        if self.device == "cuda" and (reason := self._why_not(sources)):
            raise RuntimeError(reason)
        return self._real.translate_batch(sources, **options)  # type: ignore[attr-defined]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a GPU into this machine, on which CTranslate2 fails as the argument says."""

    def put(why_not: Callable[[list[list[str]]], str | None]) -> None:
        real = ctranslate2.Translator
        monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
        monkeypatch.setattr(
            ctranslate2,
            "Translator",
            lambda folder, *, device, **options: OfAGpu(partial(real, folder, **options), device, why_not),
        )

    return put


def test_a_batch_that_does_not_fit_into_the_memory_of_ctranslate2_is_split(
    exported: str, gpu: Callable[..., None], call: Call
) -> None:
    file = Path("lines.txt")
    file.write_text("the dog sees milk.\nAnna sees milk.\nmy aunt finds the car.\n")
    gpu(lambda sources: "CUDA failed with error out of memory" if len(sources) > 1 else None)
    code, out, err = call("translate", "--run", exported, "--file", file)
    assert (code, out) == (0, "der Hund sieht Milch.\nAnna sieht Milch.\nmeine Tante findet das Auto.\n")
    assert "out of memory: a batch of 3 sentences was split in two" in err


def test_a_sentence_that_does_not_fit_into_the_memory_of_ctranslate2_is_a_bad_line(
    exported: str, gpu: Callable[..., None], call: Call
) -> None:
    file = Path("lines.txt")
    file.write_text("the dog sees milk.\nmy aunt finds the car today.\n")
    gpu(lambda sources: "mkl_malloc: failed to allocate memory" if len(sources[0]) > 5 else None)
    code, out, err = call("translate", "--run", exported, "--file", file)
    assert (code, out) == (2, "der Hund sieht Milch.\n")
    assert "lines.txt, line 2 has a sentence of 7 tokens that does not fit into memory" in err
    assert "--device cpu" in err


@pytest.mark.parametrize(("device", "number"), [("cuda", 1), ("auto", 1), ("cpu", 0)])
def test_each_process_has_a_gpu_of_its_own(
    device: str, number: int, exported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, object] = {}

    def refuse(folder: bytes, **options: object) -> None:
        given.update(options)
        raise RuntimeError("that is enough")

    monkeypatch.setattr("mt.processes.local_rank", lambda: 1)
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 2)
    monkeypatch.setattr(ctranslate2, "Translator", refuse)
    with pytest.raises(CheckpointError, match="that is enough"):
        ctranslate2_engine.CTranslate2Engine(Path(exported), [], [], device=device)
    assert (given["device"], given["device_index"]) == ("cpu" if device == "cpu" else "cuda", number)


def test_without_the_libraries_of_the_gpu_ctranslate2_computes_on_the_cpu(
    exported: str, gpu: Callable[..., None], call: Call
) -> None:
    gpu(lambda sources: "Library libcublas.so.12 is not found or cannot be loaded")
    code, out, err = call("translate", "--run", exported, "the dog sees milk.")
    assert (code, out) == (0, "der Hund sieht Milch.\n")
    assert "computes on the CPU: Library libcublas.so.12 is not found" in " ".join(err.split())
    code, out, err = call("translate", "--run", exported, "--device", "cuda", "the dog sees milk.")
    assert (code, out) == (2, "")
    assert "cannot compute on the GPU: Library libcublas.so.12 is not found" in err
    assert "--device cpu" in err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--sample"], "does not sample"),
        (["--min-length", "2"], "a minimum length"),
        (["--no-repeat-ngram", "2"], "no-repeat n-grams"),
        (["--prefix", "der"], "--prefix is for runs"),
        (["--precision", "bf16"], "--precision is for runs"),
        (["--dictionary", "terms.tsv"], "--dictionary is for runs"),
        (["--ensemble", "runs/tiny"], "--ensemble is for runs"),
        (["--checkpoint", "latest"], "--checkpoint is for runs"),
        (["--engine", "mt"], "give the run itself"),
        (["--device", "mps"], "not on mps"),
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


def test_a_column_of_prefixes_is_refused_before_a_line_is_translated(exported: str, call: Call) -> None:
    Path("lines.txt").write_text("the dog sees milk.\n" * 3 + "the dog sees milk.\tder\n")
    code, out, err = call("translate", "--run", exported, "--file", "lines.txt", "--prefix-column")
    assert (code, out) == (2, "")
    assert f"--prefix-column is for runs, but {exported} is an exported folder" in err


def test_the_engine_needs_an_exported_folder(trained: RunDirectory, call: Call) -> None:
    code, _, err = call("translate", "--run", "runs/tiny", "--engine", "ctranslate2", "milk")
    assert code == 2
    assert "mt export --run runs/tiny --to ctranslate2 OUT" in err


@pytest.mark.parametrize("name", ["model.bin", "tgt_tokenizer.json", "mt_export.json"])
def test_a_damaged_folder_is_not_translated_with(exported: str, name: str, call: Call) -> None:
    file = Path(exported) / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x41
    file.write_bytes(content)
    code, out, err = call("translate", "--run", exported, "milk")
    assert (code, out) == (2, "")
    assert f"{exported}/" in err
    assert "Export the run again" in err
    file.unlink()
    assert call("translate", "--run", exported, "milk")[0] == 2


def test_only_an_earlier_export_is_replaced(exported: str, call: Call) -> None:
    (Path(exported) / "README.md").write_text("old")
    assert call(*EXPORT, "ctranslate2", "--precision", "bf16", exported)[0] == 0
    assert json.loads((Path(exported) / "mt_export.json").read_text())["precision"] == "bf16"
    assert (Path(exported) / "README.md").read_text() != "old"
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    code, _, err = call(*EXPORT, "ctranslate2", "mine")
    assert code == 2
    assert "mine exists and is not an earlier export" in err
    assert Path("mine/thesis.txt").read_text() == "years of work"
    assert call(*EXPORT, "ctranslate2", "runs/tiny")[0] == 2


@pytest.mark.parametrize("name", [".git", "notes.txt"])
def test_an_earlier_export_with_other_files_in_it_is_kept(exported: str, name: str, call: Call) -> None:
    other = Path(exported) / name
    if name == ".git":
        other.mkdir()  # Empty folders count, too.
    else:
        other.write_text("years of work")
    before = sorted(Path(exported).iterdir())
    code, _, err = call(*EXPORT, "ctranslate2", exported)
    assert code == 2
    assert f"{other} is not part of the earlier export in {exported}" in err
    assert sorted(Path(exported).iterdir()) == before


def test_an_export_with_folders_is_replaced_unless_something_else_is_in_them(
    trained: RunDirectory, call: Call
) -> None:
    pytest.importorskip("transformers")
    for _ in range(2):
        code, _, err = call(*EXPORT, "transformers", "out")
        assert code == 0, err
    other = Path("out/source_tokenizer/notes.txt")
    other.write_text("years of work")
    code, _, err = call(*EXPORT, "transformers", "out")
    assert code == 2
    assert f"{other} is not part of" in err
    assert other.exists()


def test_a_folder_with_a_damaged_record_is_kept(exported: str, call: Call) -> None:
    (Path(exported) / "mt_export.json").write_text("{}")
    code, _, err = call(*EXPORT, "ctranslate2", exported)
    assert code == 2
    assert f"{exported} exists and is not an earlier export" in err
    assert (Path(exported) / "model.bin").exists()


@pytest.mark.parametrize(
    ("precision", "name"), [("float32", "float32"), ("bf16", "bfloat16"), ("int8", "int8")]
)
def test_scores_say_what_the_processor_computed_them_in(
    trained: RunDirectory, precision: str, name: str, call: Call
) -> None:
    assert call(*EXPORT, "ctranslate2", "--precision", precision, "out")[0] == 0
    code, _, err = call("translate", "--run", "out", "--beam", "2", "--n-best", "2", "milk")
    assert code == 0, err
    if precision == "float32" or name not in ctranslate2.get_supported_compute_types("cpu"):
        assert "computed in" not in err
    else:
        assert f"scores, computed in {precision}" in err


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("is_amd", [True, False])
def test_the_threads_of_8_bit_integers_do_not_wait_for_each_other(
    is_amd: bool, precision: str, trained: RunDirectory, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(*EXPORT, "ctranslate2", "--precision", precision, "out")[0] == 0
    monkeypatch.setattr(ctranslate2_engine, "is_amd", lambda: is_amd)
    before = torch.get_num_threads()
    with monkeypatch.context() as while_loading:
        while_loading.setattr("torch.get_num_threads", lambda: 6)
        translator = ctranslate2_engine.load_exported(Path("out"))
    # CTranslate2 sets the number of this process's OpenMP threads, which are torch's as well.
    torch.set_num_threads(before)
    engine = translator.engine
    assert isinstance(engine, ctranslate2_engine.CTranslate2Engine)
    workers = 6 if is_amd and precision == "int8" else 1
    assert (engine.num_at_once, engine._translator.num_translators) == (workers, workers)
    lines = LINES.split("\n") * 20
    one_by_one = [translator.translate([line])[0] for line in lines]
    assert translator.translate(lines) == one_by_one


def test_an_average_is_exported_by_its_name(trained: RunDirectory, call: Call) -> None:
    name = Path(call("average", "--run", "runs/tiny", "--last", "2")[1].strip()).name
    code, _, err = call(*EXPORT, "ctranslate2", "--checkpoint", name, "out")
    assert code == 0, err
    assert json.loads(Path("out/mt_export.json").read_text())["checkpoint"] == name


def test_copying_is_named_as_what_does_not_travel(make_config: Callable[..., object], call: Call) -> None:
    config = make_config("training.guided_alignment=0.5", "training.ema_decay=0.9", "training.max_steps=30")
    run_training(config, RunDirectory(Path("runs/tiny")))  # type: ignore[arg-type]
    code, _, err = call(*EXPORT, "ctranslate2", "out")
    assert code == 0, err
    assert "not in the exported model: copying of unknown words (training.guided_alignment)" in err
    assert "copying of unknown words (training.guided_alignment)" in Path("out/README.md").read_text()
    _, out, err = call("translate", "--run", "out", "the 4711 sees milk.")
    assert "4711" not in out
    assert "Their translations are guesses" in err


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
def test_a_missing_package_is_named_with_its_extra(
    package: str, trained: RunDirectory, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("mt.export", "mt.inference.ctranslate2"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    code, _, err = call(*EXPORT, package, "out")
    assert code == 2
    assert f"pip install 'mt-from-scratch[{package}]'" in err
