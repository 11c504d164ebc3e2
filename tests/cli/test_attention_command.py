"""`mt attention` as a shell would call it."""

import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import mt.inference.arriving_lines
import mt.inference.attention
from mt.run_directory import RunDirectory

SENTENCE = "Anna buys two red apples today."


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Ended]


def test_a_page_is_written_where_it_was_said(call: Call, trained: RunDirectory) -> None:
    assert call("attention", "--run", trained.path, SENTENCE).code == 0
    page = Path("attention.html").read_text(encoding="utf-8")
    assert SENTENCE in page
    # As JSON writes it.
    assert json.dumps("Anna kauft zwei rote Äpfel heute.") in page
    ended = call("attention", "--run", trained.path, SENTENCE, "--beam", "4", "--out", "other.html")
    assert ended.code == 0
    assert "Wrote other.html" in ended.err
    assert "decoder layer 1" in ended.err
    assert ended.out == ""


def test_the_format_follows_the_ending_or_is_named(call: Call, trained: RunDirectory) -> None:
    pytest.importorskip("matplotlib")
    assert call("attention", "--run", trained.path, SENTENCE, "--out", "a.svg", "--head", "all").code == 0
    assert Path("a.svg").read_bytes().startswith(b"<?xml")
    assert (
        call("attention", "--run", trained.path, SENTENCE, "--format", "png", "--kind", "encoder").code == 0
    )
    assert Path("attention.png").read_bytes().startswith(b"\x89PNG")
    assert call("attention", "--run", trained.path, SENTENCE, "--out", "a.json").code == 0
    assert json.loads(Path("a.json").read_text())["sentences"][0]["source"] == SENTENCE


def test_alignments_of_a_file_go_to_stdout_line_by_line(call: Call, trained: RunDirectory) -> None:
    Path("lines.en").write_text(f"{SENTENCE}\n\nthe dog sees milk.\n")
    ended = call("attention", "--run", trained.path, "--file", "lines.en", "--format", "pharaoh")
    assert ended.code == 0
    first, empty, third = ended.out.splitlines()
    assert len(first.split()) == 6
    assert empty == ""
    assert len(third.split()) == 4


@pytest.mark.parametrize("given", [False, True], ids=["found", "given"])
def test_the_weights_of_many_lines_are_not_kept(
    given: bool, call: Call, trained: RunDirectory, tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt.attention_maps.alignment._LINES_AT_ONCE", 7)
    monkeypatch.setattr("mt.inference.alignment_layer._NUM_PAIRS_MEASURED", 5)
    kept: list[weakref.ref[object]] = []
    most = 0
    record = mt.inference.attention.record_pair

    def recording(*arguments: Any) -> Any:
        nonlocal most
        found = record(*arguments)
        kept.extend(map(weakref.ref, found))
        most = max(most, sum(each() is not None for each in kept))
        return found

    monkeypatch.setattr(mt.inference.attention, "record_pair", recording)
    sources, targets = (
        (tiny_corpus / f"train.{side}").read_text(encoding="utf-8").splitlines()[:45] for side in ("en", "de")
    )
    sources[20] = ""
    lines = ["\t".join(pair) if given else pair[0] for pair in zip(sources, targets, strict=True)]
    Path("lines").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    options = ["--run", trained.path, "--format", "pharaoh", *(["--target-column"] if given else [])]
    whole = call("attention", "--file", "lines", *options)
    assert whole.code == 0
    assert len(kept) >= 3 * 45
    # Of each of seven lines and of one more; of a pair, those of encoder, decoder and between them.
    assert most <= 3 * 8
    # They are those of each line alone.
    for number in (0, 20, 44):
        assert (
            call("attention", *options, "--file", _file(lines[number])).out
            == whole.out.splitlines(True)[number]
        )


def _file(line: str) -> str:
    Path("one").write_text(f"{line}\n", encoding="utf-8")
    return "one"


@pytest.mark.parametrize("made", ["pharaoh", "json"])
@pytest.mark.parametrize(("bad", "says"), [("milk " * 40, "41 tokens"), ("milk. " * 20, "as a whole")])
def test_a_line_that_is_too_long_is_found_before_anything_is_written(
    made: str, bad: str, says: str, call: Call, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt.attention_maps.alignment._LINES_AT_ONCE", 2, raising=False)
    Path("lines").write_text("milk\n" * 4 + bad + "\n")
    for options in ([], ["--out", "weights"]):
        ended = call("attention", "--run", trained.path, "--file", "lines", "--format", made, *options)
        assert (ended.code, ended.out, Path("weights").exists()) == (2, "", False)
        assert "line 5 " in ended.err
        assert says in ended.err


@pytest.mark.parametrize("out", ["lines.en", "link", "runs/tiny/config.yaml"])
def test_what_it_reads_is_not_replaced(out: str, call: Call, trained: RunDirectory) -> None:
    Path("lines.en").write_text(f"{SENTENCE}\n")
    Path("link").symlink_to("lines.en")
    before = Path(out).read_bytes()
    ended = call("attention", "--run", trained.path, "--file", "lines.en", "--out", out)
    assert (ended.code, ended.err.startswith(f"mt: {out} ")) == (2, True)
    assert "choose another file" in ended.err
    assert Path(out).read_bytes() == before
    with pytest.MonkeyPatch.context() as patch, Path("lines.en").open() as lines:
        patch.setattr(mt.inference.arriving_lines, "STDIN", lines.fileno())
        ended = call("attention", "--run", trained.path, SENTENCE, "--format", "json", "--out", "lines.en")
        assert (ended.code, ended.err.startswith("mt: lines.en ")) == (2, True)
    # What it has written before is.
    for _ in range(2):
        assert call("attention", "--run", trained.path, "--file", "lines.en", "--out", "a.html").code == 0


def test_a_page_without_anything_to_show_is_refused(call: Call, trained: RunDirectory) -> None:
    ended = call("attention", "--run", trained.path, SENTENCE, "--target", "")
    assert (ended.code, "there is nothing to show" in ended.err) == (2, True)
    assert not Path("attention.html").exists()
    Path("lines.en").write_text(f"{SENTENCE}\n\nthe dog sees milk.\n")
    ended = call("attention", "--run", trained.path, "--file", "lines.en")
    assert ended.code == 0
    assert "left out, because one side has no words: line 2\n" in ended.err


@pytest.mark.parametrize(("folder", "run"), [(".", "."), ("checkpoints", "..")])
def test_the_page_names_the_run_in_which_it_is_called(
    folder: str, run: str, call: Call, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained.path / folder)
    assert call("attention", "--run", run, SENTENCE).code == 0
    assert "<title>Attention of tiny, step_0000100</title>" in Path("attention.html").read_text()


def test_given_translations_are_shown_instead(call: Call, trained: RunDirectory) -> None:
    Path("pairs.tsv").write_text("the dog sees milk.\tMilch sieht\n")
    for arguments in (
        ("the dog sees milk.", "--target", "Milch sieht"),
        ("--file", "pairs.tsv", "--target-column"),
    ):
        ended = call("attention", "--run", trained.path, *arguments, "--format", "json")
        assert ended.code == 0
        [sentence] = json.loads(ended.out)["sentences"]
        assert sentence["target"] == "Milch sieht"
        assert sentence["tgt_tokens"] == ["Milch", "sieht", "</s>"]


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["a", "--target", "b", "--target", "c"], ["1 sentence", "2 translations"]),
        (["a", "--file", "x"], ["not both"]),
        (["a", "--target-column"], ["--target-column", "--target"]),
        (["--target", "b"], ["--target-column"]),
        (["a", "--kind", "encoder"], ["--kind", "--format svg"]),
        (["a", "--head", "first", "--format", "svg"], ["--head first", "mean"]),
        (["a", "--head", "0", "--format", "svg"], ["--head 0"]),
        (["a", "b", "--format", "svg"], ["one sentence, not 2"]),
        (["a", "--layer", "7"], ["no decoder layer 7"]),
        (["a", "--layer", "7", "--format", "svg", "--kind", "encoder"], ["no layer 7"]),
        (["a", "--out", "nowhere/a.html"], ["nowhere"]),
        (["milk " * 40], ["line 1", "41 tokens"]),
        (["a"] * 101, ["100 sentences", "101"]),
        (["--file", "missing.en"], ["missing.en"]),
    ],
)
def test_what_does_not_fit_gets_one_sentence(
    arguments: list[str], facts: list[str], call: Call, trained: RunDirectory
) -> None:
    ended = call("attention", "--run", trained.path, *arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert not list(Path().glob("attention.*"))
    for fact in facts:
        assert fact in ended.err
    assert "Traceback" not in ended.err


def test_a_missing_extra_is_named(call: Call, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ended = call("attention", "--run", trained.path, SENTENCE, "--format", "svg")
    assert ended.code == 2
    assert "matplotlib" in ended.err
    assert "pip install -e '.[pictures]'" in ended.err


def test_a_terminal_gets_no_control_characters(call: Call, trained: RunDirectory) -> None:
    Path("bad\x1b[31m.tsv").write_text("no tab\x1b[31m here\n")
    ended = call("attention", "--run", trained.path, "--file", "bad\x1b[31m.tsv", "--target-column")
    assert ended.code == 2
    assert "\x1b" not in ended.err
    ended = call("attention", "--run", trained.path, "milk \x1b[31m", "--format", "json")
    assert "\x1b" not in ended.out
