"""What the README and the guides say: their commands run, and the tests that they name are there."""

import ast
import contextlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from mt.__main__ import main
from mt.config.config import Config
from mt.run_directory import RunDirectory

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}

# The tiny model that stands for those of the guides; each is for commands that take `--set`.
TINY = [
    "model.d_model=16", "model.num_heads=2", "model.d_ff=32", "model.num_encoder_layers=1",
    "model.num_decoder_layers=1", "schedule.warmup_steps=4", "training.device=cpu", "training.max_steps=24",
    "training.max_epochs=null", "training.batch_tokens=200", "validation.every_steps=12",
    "checkpoint.every_steps=6",
]  # fmt: skip
# Names in the guides that need something large, or a network, and what takes their place.
SUBSTITUTES = {
    "runs/opus": "runs/en-de",
    "lr-$rate": "lr-0.002",
    "=$rate": "=0.002",
    "lr-0.0005": "lr-0.002",
    "lr-0.008": "lr-0.002",
    "step_0002000": "step_0000012",
    "step_0001000": "step_0000100",
    "average_0002000": "average_0000200",
}
# Commands that are not run, and why.
NOT_RUN = {
    "mt evaluate --run runs/en-de --behaviours": "needs 30 lines to test; cli/test_behaviours_command.py",
    "mt evaluate --run runs/en-de --data sacrebleu:wmt14": "asks a server; evaluation/test_standard_sets.py",
    "mt export --run runs/en-de --to hub": "asks a server; cli/test_hub_command.py",
    "mt translate --run hub:org": "asks a server; cli/test_hub_command.py",
    "mt import Helsinki-NLP": "asks a server; export/test_import.py",
    "mt serve": "runs until it is stopped; serving/test_app.py",
    "mt translate --run m1 --ensemble quickstart": "runs that do not fit; inference/test_translator.py",
}
# Packages that the commands of a page need beside those of mt.
EXTRAS = {"docs/export.md": ("ctranslate2", "transformers")}
# The console blocks of this page show the figures of a machine.
PAGE_RUN_ELSEWHERE = "docs/check.md"
# These begin with a corpus alone, and make the run that they then use.
PAGES_THAT_TRAIN = ("README.md", "docs/tutorial.md", "docs/experiments.md", "docs/directions.md")


@dataclass(frozen=True)
class Shown:
    """A command as a page shows it."""

    page: str
    line: str
    fails: bool
    """Whether the page shows an error as its answer."""


def _commands() -> Iterator[Shown]:
    for page, text in TEXTS.items():
        for kind, block in re.findall(r"^```(bash|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            if kind == "bash":
                lines = re.sub(r"\\\n\s*", "", block).splitlines()
                yield from (Shown(page, bare, False) for line in lines if (bare := _without_comment(line)))
            elif page != PAGE_RUN_ELSEWHERE:
                for command, answer in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                    yield Shown(page, command, answer.startswith("mt: "))


def _without_comment(line: str) -> str:
    return re.sub(r"(^|\s)#.*", "", line).strip()


COMMANDS = list(_commands())
RUN_HERE = [
    page for page in TEXTS if any(" mt " in f" {each.line}" for each in COMMANDS if each.page == page)
]


@pytest.fixture
def workspace(
    tiny_corpus: Path,
    trained: RunDirectory,
    several: RunDirectory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps_of_constant_speed: None,
) -> Iterator[Path]:
    """A folder where the names in the guides mean something small."""
    monkeypatch.chdir(tmp_path)
    # The files of a run of 200 steps.
    trained.path.rename("runs/en-de")
    several.path.rename("runs/both")
    # The newest.
    Path("runs/en-de/checkpoints/latest").touch()
    for copy in ("runs/a", "runs/b", "runs/c"):
        shutil.copytree("runs/en-de", copy)
    for corpus in ("my-corpus", "next-month"):
        shutil.copytree(tiny_corpus, corpus)
    pairs = list(
        zip(*(Path(f"my-corpus/train.{side}").read_text().splitlines() for side in ("en", "de")), strict=True)
    )
    Path("deu.txt").write_text("".join(f"{src}\t{tgt}\tCC-BY\n" for src, tgt in pairs), encoding="utf-8")
    Path("news.en").write_text("".join(f"{src}\n" for src, _ in pairs[:4]) + "milk " * 40 + "\nmilk\n")
    for side, column in (("en", 0), ("de", 1)):
        Path(f"test.{side}").write_text("".join(f"{pair[column]}\n" for pair in pairs[:5]), encoding="utf-8")
    Path("page.html").write_text("<p>The <b>dog</b> sees milk.</p>\n")
    Path("configs").mkdir()
    Path("configs/my.yaml").write_text("data: {path: my-corpus, src: en, tgt: de, max_length: 16}\n")
    logger = logging.getLogger("mt")
    before = logger.level, logger.propagate, logger.handlers
    yield tmp_path
    logger.level, logger.propagate, logger.handlers = before


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[] if page == "README.md" else [pytest.mark.slow]) for page in RUN_HERE]
)
def test_the_commands_of_a_page_run(page: str, workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for package in EXTRAS.get(page, ()):
        pytest.importorskip(package)
    if page in PAGES_THAT_TRAIN:
        shutil.rmtree("runs")
    for command in (each for each in COMMANDS if each.page == page and " mt " in f" {each.line}"):
        if any(command.line.startswith(line) for line in NOT_RUN):
            continue
        code = _run(command.line)
        error = capfd.readouterr().err
        assert (code != 0) == command.fails, f"{command.line}\n{error}"
        assert "Traceback" not in error, command.line


def _run(line: str) -> int:
    """Call ``main`` as a shell would for one line, with a pipe before it and a file behind it if need be."""
    for name, substitute in SUBSTITUTES.items():
        line = line.replace(name, substitute)
    # The names of translations have their checkpoint, and a checksum of the test set, which are others here.
    for best in Path().glob("runs/en-de/checkpoints/best"):
        line = line.replace("step_0001400", best.read_text().strip())
    for file in Path().glob("runs/en-de/references.test-*.txt"):
        line = line.replace("0123456789ab", file.stem.partition("test-")[2])
    producer, _, line = line.rpartition(" | ")
    line, _, target = line.partition(" > ")
    arguments = shlex.split(line)
    if arguments[1] in ("train", "check") and "en-de/config.yaml" not in line:
        # The model of a run to begin from is as it is.
        tiny = [option for option in TINY if "adapted" not in line or not option.startswith("model.")]
        arguments += [word for option in tiny for word in ("--set", option)]
    given = subprocess.run(["bash", "-c", producer], check=True, capture_output=True).stdout
    Path("stdin").write_bytes(given)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_stdin(Path("stdin")))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(sys, "argv", arguments)
        if target:
            patch.setattr(sys, "stdout", stack.enter_context(Path(target).open("w", encoding="utf-8")))
        try:
            main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


@contextlib.contextmanager
def _stdin(file: Path) -> Iterator[None]:
    saved = os.dup(0)
    try:
        with file.open("rb") as stream:
            os.dup2(stream.fileno(), 0)
        yield
    finally:
        os.dup2(saved, 0)
        os.close(saved)


def _change(text: str, root: Path) -> None:
    """Apply the change that a page shows to the package in ``root``: in each hunk a file, or several."""
    [diff] = re.findall(r"^```diff\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for hunk in diff.split("@@ ")[1:]:
        names, *lines = hunk.splitlines()
        old, new = ("".join(f"{line[1:]}\n" for line in lines if line[0] in kept) for kept in ("- ", "+ "))
        for name in names.split(" and "):
            source = (root / name).read_text(encoding="utf-8")
            assert source.count(old) == 1, f"{name} no longer has these lines once:\n{old}"
            (root / name).write_text(source.replace(old, new), encoding="utf-8")


# In a process that imports the changed code. Token by token the model must give what it gives at once.
CHANGED_MODEL = """
import sys, torch, mt
from mt.config.load import load_config
config = load_config(sys.argv[1], ["training.max_steps=1", "training.device=cpu"])
model = mt.build_transformer(config.model, src_vocab_size=9, tgt_vocab_size=9, max_length=16).eval()
ids, mask, future = torch.tensor([[2, 5, 6]]), torch.ones(1, 1, 1, 3).bool(), torch.ones(3, 3).tril().bool()
memory = model.encode(ids, mask)
cache = model.start_cache(memory, mask)
steps = torch.stack([model.decode_step(ids[:, number], cache)[0] for number in range(3)], 1)
torch.testing.assert_close(steps, model.project(model.decode(ids, memory, mask, future).hidden))
mt.train(config, "changed")
print(mt.Translator.from_run("changed").why)
mt.export_run("changed", "exported", to="transformers")
"""


@pytest.mark.slow
def test_a_changed_model_translates_with_torch_alone(tiny_config_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    shutil.copytree(ROOT / "mt", tmp_path / "mt")
    _change(TEXTS["docs/change-the-model.md"], tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "MT_ENGINE": ""}
    command = [sys.executable, "-c", CHANGED_MODEL, str(tiny_config_file)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    for answer in (done.stdout, done.stderr.splitlines()[-1]):
        assert "log-probabilities of random sentences differ by" in answer, done.stderr
    assert not (tmp_path / "exported").exists()


def _anchors(page: Path) -> set[str]:
    """What links to the headings of a page end with on GitHub: lower case, hyphens, no other punctuation."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not anchor or anchor in _anchors(file), target


def test_each_name_in_the_page_on_the_paper_is_in_the_file_that_it_links_to() -> None:
    page = (ROOT / "docs" / "transformer.md").read_text(encoding="utf-8")
    named = re.findall(r"\[`([\w.]+)`\]\(\.\./(mt/[\w/]+\.py)\)", page)
    assert len(named) > 40
    for name, path in named:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert name.rpartition(".")[2] in defined, f"{path} does not define {name}"


# What the guides name beside what is ours: variables of the environment, and what other libraries have.
NAMES_OF_OTHERS = {
    "AutoTokenizer", "DistributedDataParallel", "LayerNorm", "MT_VENV", "RecursionError", "Seq2SeqTrainer",
    "SummaryWriter", "ValueError", "breakpoint", "scripts/build_vocab.py",
}  # fmt: skip
FILE_NAMES = ("json", "safetensors", "en", "de")


def _defined(folders: Sequence[str]) -> set[str]:
    """The names of classes, functions and variables of the modules in these folders."""
    names = set()
    for file in [file for folder in folders for file in (ROOT / folder).rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return names


def _is_there(name: str, defined: set[str]) -> bool:
    """Whether what looks like a name of our code is one; a path may be in the package or among the tests."""
    section, _, option = name.partition(".")
    if name in NAMES_OF_OTHERS or name.removesuffix("()") in NAMES_OF_OTHERS:
        return True
    if re.fullmatch(r"mt/[\w/]+/?|[\w/.-]+/\w+\.py", name):
        return any((ROOT / folder / name).exists() for folder in ("", "mt", "tests"))
    if section in Config.model_fields and re.fullmatch(r"\w+", option) and option not in FILE_NAMES:
        return option in getattr(Config.model_fields[section].annotation, "model_fields", ())
    # A class with or without a method, a function that is called, a constant.
    for pattern in (
        r"((?:[A-Z][a-z0-9]+){2,})(?:\.(\w+))?(?:\(\))?",
        r"(?:\w+\.)*(\w+)\(\)",
        r"([A-Z]+_[A-Z_]+)",
    ):
        if found := re.fullmatch(pattern, name):
            return {*filter(None, found.groups())} <= defined
    return True


def test_each_name_of_our_code_in_the_guides_is_one() -> None:
    defined = _defined(["mt", "tests", "scripts"])
    missing = []
    for page, text in TEXTS.items():
        prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        constants_are_ours = page == "CONTRIBUTING.md"
        for name in re.findall(r"`([^`\s]+)`", prose):
            if constants_are_ours or not name.isupper():
                missing += [] if _is_there(name, defined) else [(page, name)]
    assert missing == []
