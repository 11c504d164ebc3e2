"""What docs/training.md shows is what the commands print today, but for the figures."""

import re
import shutil
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

from mt.__main__ import main
from mt.errors import RunError
from mt.evaluation.evaluate import run_evaluation
from mt.reports.runs import find_runs
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam

PAGE = (Path(__file__).parent.parent.parent / "docs" / "training.md").read_text(encoding="utf-8")


def shown(command: str) -> str:
    """The answer to a command in the page."""
    match = re.search(rf"^\$ {re.escape(command)}\n((?:(?!\$ |```).*\n)*)", PAGE, re.MULTILINE)
    assert match, command
    return match[1]


@pytest.fixture
def answer(
    trained: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], str]:
    """What a command prints in a folder with the runs of the page."""
    monkeypatch.chdir(trained.path.parent.parent)
    trained.path.rename("runs/en-de")
    for name, dropout in (("a", "0.0"), ("b", "0.3")):
        shutil.copytree("runs/en-de", f"runs/{name}")
        config = Path(f"runs/{name}/config.yaml")
        config.write_text(re.sub(r"^  dropout: .*$", f"  dropout: {dropout}", config.read_text(), flags=re.M))
    for beam in (None, Beam(4)):
        run_evaluation("runs/en-de", analyse=False, device="cpu", beam=beam)

    def run(command: str) -> str:
        monkeypatch.setattr(sys, "argv", command.split())
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        return capsys.readouterr().out

    return run


def form(text: str) -> list[str]:
    """The first word of each line, indented, without figures and paths; of equal ones in a row one."""
    words = re.findall(r"^ *\S+", text, re.MULTILINE)
    plain = [re.sub(r"\S*/\S*|builtin:\S*", "PATH", re.sub(r"[\d,.]+", "0", word)) for word in words]
    return [word for word, _ in groupby(plain)]


@pytest.mark.parametrize("command", ["mt runs", "mt runs runs/a runs/b"])
def test_the_table_has_the_columns_and_rows_of_the_page(answer: Callable[[str], str], command: str) -> None:
    now, then = answer(command), shown(command)
    assert form(now) == form(then)
    heads = [re.split(r"  +", text.splitlines()[0]) for text in (now, then)]
    assert heads[0] == heads[1]
    cells = [[len(re.split(r"  +", line)) for line in text.splitlines()] for text in (now, then)]
    assert cells[0] == cells[1]


def test_show_has_the_lines_of_the_page(answer: Callable[[str], str]) -> None:
    ours = "\n".join(form(answer("mt show runs/en-de")))
    for excerpt in shown("mt show runs/en-de").removesuffix("...\n").split("...\n"):
        assert "\n".join(form(excerpt)) in ours


def test_runs_are_found_in_folders_and_by_name_without_repetition(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "README.md").write_text("not a run")

    def names(*paths: Path) -> list[str]:
        return [run.path.name for run in find_runs(paths)]

    assert names(tmp_path) == ["a", "b"]
    assert names(tmp_path / "b", tmp_path) == ["b", "a"]
    (tmp_path / "c").symlink_to("b")
    assert names(tmp_path) == ["a", "b", "c"]
    with pytest.raises(RunError, match="There is no run in"):
        names(tmp_path / "notes")
    with pytest.raises(RunError, match=r"Cannot list .*nowhere: No such file"):
        names(tmp_path / "nowhere")
