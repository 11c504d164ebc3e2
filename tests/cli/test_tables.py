"""Tables for papers and JSON for programs: their shapes, which users may rely on, and exit codes."""

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from mt.run_directory import RunDirectory
from tests.fixture_types import Call, Refuse

BLEU = {"a-1": 40.0, "a-2": 43.0, "b_1": 50.0, "b_2": 52.5}


@pytest.fixture
def sweep(succeed: Call, trained: RunDirectory) -> list[Path]:
    """Two settings of two seeds each, whose test scores are those above."""
    succeed("evaluate", "--scores-only", "--device", "cpu")
    config, record = trained.config_file.read_text(), json.loads(trained.evaluations_file.read_text())
    for name, bleu in BLEU.items():
        run = RunDirectory(Path(shutil.copytree(trained.path, f"sweep/{name}")))
        text = re.sub("  seed: .*", f"  seed: {name[-1]}", config)
        # Which is no setting.
        text = re.sub("  report_to: .*", f"  report_to: {'wandb' if name == 'a-2' else 'null'}", text)
        run.config_file.write_text(re.sub("  dropout: .*", f"  dropout: 0.{'ab'.index(name[0])}", text))
        record["scores"]["bleu"]["value"] = bleu
        run.evaluations_file.write_text(json.dumps(record) + "\n")
        (run.path / "comet.json").write_text(json.dumps({"x.txt": [{"COMET": bleu / 100, "src": "a"}] * 2}))
        (run.path / "lines.txt").write_text(f"{bleu}\n{bleu + 1}\n")
    return [Path("sweep") / name for name in BLEU]


@pytest.mark.usefixtures("sweep")
def test_seeds_of_a_setting_are_one_row_in_each_form(succeed: Call, refuse: Refuse) -> None:
    table = ("runs", "sweep", "--scores", "COMET=comet.json", "--format")
    ended = succeed(*table, "csv", "--scores", "other=lines.txt")
    one, two = csv.DictReader(io.StringIO(ended.out))
    assert [*one][:2] == ["dropout", "n"]
    assert {title for title in one if title.startswith("test")} == {
        *(f"test {metric}" for metric in ("BLEU", "BLEU sd", "chrF2++", "chrF2++ sd", "TER", "TER sd"))
    }
    assert (one["dropout"], one["n"], one["test BLEU"], one["test BLEU sd"]) == ("0.0", "2", "41.50", "2.12")
    assert (two["COMET"], two["COMET sd"], two["other"]) == ("0.5125", "0.0177", "51.7500")
    assert "BLEU signature: nrefs:1|" in ended.err
    head, line, first, _ = succeed(*table, "md").out.splitlines()
    assert (head.count("|"), line.count("---"), first.count("|")) == (8, 7, 8)
    assert "| 41.50 ± 2.12 |" in first
    assert first.endswith("| 0.4150 ± 0.0212 |")
    latex = succeed(*table, "latex").out
    assert latex.startswith("\\begin{tabular}{lrrrrrr}\n\\toprule\ndropout & n & best BLEU & test BLEU")
    assert "51.25 $\\pm$ 1.77" in latex
    assert "needs a table: add --format text" in refuse("runs", "sweep", "--scores", "COMET=comet.json")
    for wrong, says in (
        ("COMET", "the form is COLUMN=FILE"),
        ("COMET=config.yaml", "has no scores: could not convert string"),
        ("x=comet.json", "has no scores: it has not one number. It needs a number in each line, or in JSON"),
        ("COMET=nowhere", "nowhere"),
    ):
        assert says in refuse("runs", "sweep", "--format", "text", "--scores", wrong)
    Path("sweep/b_1/evaluations.jsonl").unlink()
    # A mean over fewer seeds than n would say something else.
    assert succeed(*table, "text").out.splitlines()[2].split()[-6:-3] == ["-", "-", "-"]


def test_several_runs_are_evaluated_in_one_table_and_bleu_may_have_to_reach_a_value(
    call: Call, refuse: Refuse, sweep: list[Path]
) -> None:
    command = ("evaluate", "--run", *sweep[:2], "--scores-only", "--device", "cpu")
    code, out, err = call(*command, "--format", "csv", "--outputs", "out")
    one, two = csv.DictReader(io.StringIO(out))
    assert [*one] == ["run", "direction", "BLEU", "chrF2++", "TER", "exact"]
    assert (code, one["run"], one["direction"]) == (0, "sweep/a-1", "en to de")
    # Copies of one run.
    assert one["BLEU"] == two["BLEU"]
    assert "BLEU signature: nrefs:1|" in err
    assert Path("out/a-2/hypotheses.txt").exists()
    assert call(*command, "--fail-under", one["BLEU"].split(".")[0]).code == 0
    code, out, err = call(*command, "--fail-under", "100")
    assert (code, out.splitlines()[0].split()[:2]) == (1, ["run", "direction"])
    assert err.endswith(f"sweep/a-1 has {one['BLEU']} BLEU, less than --fail-under 100\n")
    assert "is for one run" in refuse(*command, "--behaviours")
    assert "--worst and --format are mutually exclusive" in refuse(*command, "--worst", "2")


def test_two_groups_of_seeds_are_compared(succeed: Call, sweep: list[Path], tiny_corpus: Path) -> None:
    references = (tiny_corpus / "test.de").read_text(encoding="utf-8").splitlines()
    files = []
    for number, (run, wrong) in enumerate(zip(sweep, (9, 11, 1, 2), strict=True)):
        lines = [line.replace(" ", " x ") if n < wrong else line for n, line in enumerate(references)]
        files.append(run / f"{number}.txt")
        files[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    compare = ("compare", *files[:2], "--against", *files[2:], "--device", "cpu")
    out = succeed(*compare).out
    assert [line[0] for line in out.splitlines()[:4]] == [*"AABB"]
    result = json.loads(succeed(*compare, "--json").out)
    values = [each["score"]["value"] for each in result["scores"]["bleu"]]
    p_value = result["groups"]["bleu"]
    gain = fmean(values[2:]) - fmean(values[:2])
    [row] = [line for line in out.splitlines() if re.match(r"B +\d", line)]
    assert re.split("  +", row)[1:4] == [
        f"{fmean(values[2:]):.2f} ± {stdev(values[2:]):.2f}", f"{gain:+.2f}", f"{p_value:.4f}",
    ]  # fmt: skip
    ended = succeed(*compare, "--format", "latex")
    assert "\nsweep/a (2) & " in ended.out
    assert "TER signature" in ended.err
    head, a, b = csv.reader(io.StringIO(succeed("compare", *files[:2], "--format", "csv").out))
    assert (head[:4], a[0], a[2:4]) == (["", "BLEU", "- A", "p"], str(files[0]), ["", ""])
    assert float(b[2]) < 0


@pytest.fixture
def objects(succeed: Call) -> Callable[..., list[Any]]:
    """The objects that a command prints, which are all that it prints."""
    return lambda *arguments: [json.loads(line) for line in succeed(*arguments, "--json").out.splitlines()]


def test_the_json_of_each_command_has_its_shape(
    objects: Callable[..., list[Any]],
    refuse: Refuse,
    sweep: list[Path],
    tiny_config_file: Path,
) -> None:
    [check] = objects("check", "-c", tiny_config_file, "--run", "runs/new")
    assert [*check] == ["sections", "verdict", "warnings"]
    assert {tuple(section) for section in check["sections"]} == {("name", "summary", "details")}
    summary = {
        *("state", "detail", "step", "epochs", "num_target_tokens", "seconds", "tokens_per_second"),
        *("best_bleu", "test_bleu", "test_chrfpp", "test_ter"),
    }
    [show] = objects("show", sweep[0])
    sections = "run problems model corpus curves sessions checkpoints evaluations environment"
    assert {*show} == summary | {*sections.split()}
    assert show["curves"]["train/loss"][-1][0] == show["step"] == 200
    assert show["test_bleu"] == 40
    [runs] = objects("runs", "sweep")
    assert {*runs[0]} == summary | {"name", "options"}
    assert runs[3]["options"] == {"model.dropout": "0.1", "training.seed": "2"}
    translate = ("translate", "--run", sweep[0], "--device", "cpu", "the dog sees milk.", "Zug")
    one, two = objects(*translate, "--beam", "2", "--n-best", "2", "--alignment")
    assert {*one} == {"line", "source", "engine", "precision", "translations"}
    assert (one["line"], one["source"], one["engine"], two["line"]) == (1, "the dog sees milk.", "torch", 2)
    best, second = one["translations"]
    assert {*best} == {"text", "score", "log_prob", "unknown", "copied", "alignment"}
    assert best["text"] == "der Hund sieht Milch."
    assert best["score"] >= second["score"]
    assert [2, 2] in best["alignment"]
    assert two["translations"][0]["unknown"] == ["Zug"]
    assert "alignment" not in objects(*translate)[0]["translations"][0]
    assert "--alignment needs --json" in refuse(*translate, "--alignment")
    assert "--json and --format are mutually exclusive" in refuse("runs", "--json", "--format", "md")
