"""`mt translate`: sentences, files and pipes; one line out for one line in."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mt.cli.lines import Block, LineTranslator, count_lines, read_dictionary
from tests.fixture_types import Call, Refuse, Start
from tests.processes import environment


def test_sentences_on_the_command_line(call: Call) -> None:
    sentences = ("the dog sees milk.", "", "Anna buys\ntwo red apples!")
    translations = "der Hund sieht Milch.\n\nAnna kauft zwei rote Äpfel!\n"
    assert call("translate", *sentences) == (0, translations, "run: runs/tiny\n")
    _, out, err = call("translate", "--run", "tiny", "-v", "--precision", "float32", *sentences)
    assert (out, err) == (translations, "engine: torch, float32 on cpu, because MT_ENGINE is torch\n")


def test_constraints_hold(call: Call) -> None:
    for options, shortest, longest in (
        ("--min-length 9 --no-repeat-ngram 1", 9, 15),
        ("--max-length 2", 2, 2),
    ):
        out = call("translate", "the car the car the car", *options.split()).out
        tokens = re.findall(r"\w+|[.!]", out)
        assert shortest <= len(tokens) <= longest
        assert len(tokens) == len(set(tokens))


def test_a_file_ends_its_lines_with_line_feeds_alone(call: Call) -> None:
    file = Path("lines.txt")
    text = "\ufeffthe dog sees milk.\r\n\nAnna sees\u2028milk.\nmy aunt\x0c finds\x85the car."
    file.write_bytes(text.encode())
    translations = "der Hund sieht Milch.\n\nAnna sieht Milch.\nmeine Tante findet das Auto.\n"
    assert call("translate", "--file", file)[:2] == (0, translations)
    assert count_lines(file) == 3
    file.write_text("")
    assert call("translate", "--file", file) == (0, "", "run: runs/tiny\n")


pytestmark = pytest.mark.usefixtures("trained")
LATIN_1 = b"Anna \xff sees\xe9 milk."
LONG = b"car " * 40


@pytest.fixture
def bad_file() -> Path:
    """Good lines, two that are not UTF-8, and two that are longer than the model reads."""
    file = Path("lines.txt")
    lines = [b"the dog sees milk.", LATIN_1, LONG, b"", LATIN_1, LONG, b"Anna sees milk."]
    file.write_bytes(b"\n".join(lines) + b"\n")
    return file


def test_pairs_are_written_for_other_programs_and_appear_whole(call: Call, bad_file: Path) -> None:
    command = ("translate", "--file", bad_file, "--pairs", "out.jsonl")
    assert call(*command).code == 2
    assert not Path("out.jsonl").exists()
    assert call(*command, "--on-error", "empty")[:2] == (0, "")
    pairs = [json.loads(line) for line in Path("out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert pairs[0] == {"en": "the dog sees milk.", "de": "der Hund sieht Milch."}
    assert [len(pair["en"]) for pair in pairs] == [18, len(LONG), len(LONG), 15]
    assert not [*Path().glob(".out*")]


@pytest.mark.parametrize("is_piped", [False, True])
def test_bad_lines_are_skipped_and_reported_once(is_piped: bool, bad_file: Path) -> None:
    command = [sys.executable, "-m", "mt", "translate", "--on-error", "empty", "--run", "runs/tiny"]
    if not is_piped:
        command += ["--file", str(bad_file)]
    given = bad_file.read_bytes() if is_piped else b""
    ended = subprocess.run(command, input=given, capture_output=True, env=environment())
    assert ended.returncode == 0
    first, bad, cut, *rest = ended.stdout.decode().split("\n")
    assert [first, bad, *rest] == ["der Hund sieht Milch.", "", "", "", cut, "Anna sieht Milch.", ""]
    assert cut.count("Auto") == 3
    in_parts, warning = ended.stderr.decode().splitlines()
    assert "sentences in 2 lines are longer than the 16 tokens that this model reads" in in_parts
    name = "standard input" if is_piped else "lines.txt"
    reason = f"left empty. The first: {name}, line 2 is not UTF-8"
    assert warning.startswith(f"warning: 2 lines could not be translated: {reason}")


def test_a_file_is_opened_as_a_text_of_a_corpus_is(call: Call, refuse: Refuse) -> None:
    Path("a.en.gz").write_bytes(gzip.compress("\ufeffthe dog sees milk.\r\n\nAnna sees milk.".encode()))
    # What cannot be counted without reading it has no length.
    assert [count_lines(Path(name)) for name in ("a.en.gz", "nowhere", os.devnull)] == [None] * 3
    Path("mac.en").write_bytes(b"the dog sees milk.\r\rAnna sees milk.\r")
    for name in ("a.en.gz", "mac.en"):
        assert call("translate", "--file", name)[1] == "der Hund sieht Milch.\n\nAnna sieht Milch.\n"
    subtitles = "1\n00:00:00,000 --> 00:00:02,500\nthe dog sees milk.\n"
    Path("film.en").write_text(subtitles)
    Path("pairs.tsv").write_text("dog\tHund\ncat\tKatze\n")
    for command in ("translate", "score"):
        call_of = [sys.executable, "-m", "mt", command]
        ended = subprocess.run(call_of, input=subtitles, capture_output=True, text=True, env=environment())
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "mt: standard input is subtitles, not lines of text: " in ended.stderr
    for option, file, says in (
        ("--file", "film.en", "< film.en | grep"),
        ("--dictionary", "film.en", "< film.en | grep"),
        ("--file", "pairs.tsv", "pairs.tsv is a table of several columns, not lines of text: take out one"),
    ):
        assert says in refuse("translate", option, file)


def test_lines_in_which_nothing_can_be_seen_are_empty(call: Call) -> None:
    invisible = ["\ufe0e", "\u3164", "\u2800", "\u034f", "\u115f", "\u2063 \u2028", "\x07"]
    Path("lines.txt").write_text("".join(f"{line}\n" for line in invisible), encoding="utf-8")
    assert call("translate", "--file", "lines.txt", "--run", "runs/tiny") == (0, "\n" * len(invisible), "")


def test_bad_lines_with_n_best_and_with_a_prefix(
    call: Call, bad_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever is in one block with what.
    monkeypatch.setattr("mt.cli.lines.MOST_LINES_AT_ONCE", 2)
    options = ("--file", bad_file, "--on-error", "empty", "--run", "runs/tiny")
    code, out, err = call("translate", "--beam", "2", "--n-best", "2", *options)
    assert "sentences in 2 lines are longer than the 16 tokens" in err
    assert "2 lines could not be translated: left empty. The first: lines.txt, line 2 is not UTF-8" in err
    rows = [line.split("\t") for line in out.split("\n")[:-1]]
    assert code == 0
    assert [int(row[0]) for row in rows] == [1, 1, 2, 3, 3, 4, 5, 6, 6, 7, 7]
    assert rows[2] == ["2", "0.0000", "0.0000", ""]
    code, out, err = call("translate", "--prefix", "Anna", *options)
    assert code == 0
    assert [bool(line) for line in out.split("\n")[:-1]] == [True, False, True, False, False, True, True]
    assert out.startswith("Anna")
    assert "2 lines could not be translated: left empty" in err


@pytest.mark.usefixtures("little_memory")
def test_a_sentence_that_does_not_fit_into_memory_is_a_bad_line(call: Call) -> None:
    file = Path("lines.txt")
    file.write_text("the dog sees milk.\nmilk milk milk milk milk milk milk milk milk\nAnna sees milk.\n")
    code, out, err = call("translate", "--file", file)
    assert (code, out) == (2, "der Hund sieht Milch.\n")
    assert "line 2 has a sentence of 9 tokens that does not fit into memory" in err
    assert "Continue after it with tail -n +3," in err
    assert "left empty" not in err
    out = call("translate", "--file", file, "--on-error", "empty")[1]
    assert out == "der Hund sieht Milch.\n\nAnna sieht Milch.\n"
    # What stops it does not keep the warnings about the lines before from being printed.
    file.write_bytes(b"the zebra sees milk.\n\xff\n")
    code, out, err = call("translate", "--file", file)
    assert (code, out.count("\n")) == (2, 1)
    assert "does not know 1 word: zebra. " in err
    assert "line 2 is not UTF-8" in err


def test_sampling_and_unknown_words_can_be_asked_for(call: Call) -> None:
    sentence = "the zebra paints two zebra."
    sample = ["translate", "--sample", "--temperature", "3", sentence, sentence, sentence]
    _, out, _ = call(*sample, "--seed", "5")
    assert call(*sample, "--seed", "5")[1] == out
    assert call(*sample, "--seed", "6")[1] != out
    assert len(set(out.splitlines())) > 1
    # Of the likeliest word alone the same is drawn as is searched.
    greedy = call("translate", sentence)[1]
    assert call(*sample[:-2], "--top-k", "1")[1] == greedy
    assert call(*sample[:-2], "--top-p", "0.001")[1] == greedy
    assert call("translate", "--keep-unk", sentence)[0] == 0


def test_a_pipe_is_answered_line_by_line_and_may_stay_open(start: Start) -> None:
    with start("translate") as process:
        for line, answer in [("the dog sees milk.", "der Hund sieht Milch.\n"), ("", "\n")]:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            # Nothing else comes: the answer must not wait for more input.
            assert process.stdout.readline() == answer
        os.write(process.stdin.fileno(), b"car \xff\n")
        # It ends although the pipe is open, and while a thread of it still reads there.
        assert process.wait(timeout=120) == 2
        assert "mt: standard input, line 3 is not UTF-8" in process.stderr.read()


def test_ctrl_c_while_it_waits_for_a_line(start: Start) -> None:
    # Also: what goes out is UTF-8 whatever the locale.
    with start("translate", PYTHONIOENCODING="ascii", LC_ALL="C") as process:
        process.stdin.write("Anna buys two red apples.\n")
        process.stdin.flush()
        assert process.stdout.readline() == "Anna kauft zwei rote Äpfel.\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
        assert process.stderr.read() == "run: runs/tiny\n"


def test_ctrl_c_ends_a_search_at_its_next_step(start_endless: Start) -> None:
    # Two batches, each of which takes minutes.
    with start_endless("translate", *["milk " * 200] * 8) as process:
        try:
            while "searching in" not in (said := process.stderr.readline()):
                assert said, "it ended"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()


def test_a_closed_output_pipe_ends_it_quietly(start: Start) -> None:
    with start("translate") as process:
        process.stdin.write("the dog sees milk.\n" * 20)
        process.stdin.flush()
        assert process.stdout.readline() == "der Hund sieht Milch.\n"
        process.stdout.close()
        process.stdin.write("the dog sees milk.\n" * 20)
        process.stdin.close()
        process.wait(timeout=120)
        assert process.stderr.read() == "run: runs/tiny\n"


def test_unknown_words_are_reported_once(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path("lines.txt")
    file.write_text("Schadenfreude sees milk.\nthe dog!\nSchadenfreude and \x1b[31m sees milk.\n" * 300)
    code, out, err = call("translate", "--file", file, "--run", "runs/tiny")
    assert (code, out.count("\n")) == (0, 900)
    (warning,) = [line for line in err.splitlines() if line.startswith("warning: ")]
    # The noun twice, "and", and the escape sequence in three tokens, which must not reach the terminal.
    assert " does not know 1,800 words: " in warning
    assert warning.count("Schadenfreude") == 1
    assert "\x1b" not in err
    assert call("translate", "the dog sees milk.", "--run", "runs/tiny")[2] == ""
    five, six = "Zo Zu Ze Za Zi", "Zo Zu Ze Za Zi Zy"
    assert "does not know 5 words: Zo, Zu, Ze, Za, Zi. Their " in call("translate", five).err
    assert "does not know 6 words: Zo, Zu, Ze, Za, Zi and others. Their " in call("translate", six).err
    monkeypatch.setattr("mt.config.config.Config.copies_words", True)
    assert "copied" in call("translate", "the zebra sees milk.")[2]
    err = call("translate", "the zebra sees milk.", "--max-length", "1", "--prefix", "der Hund")[2]
    assert "0 of them are copied into the translation, not zebra." in err
    assert "copied" not in call("translate", "the zebra sees milk.", "--keep-unk")[2]
    Path("words.tsv").write_text("zebra\tZebra\n")
    _, out, err = call("translate", "the zebra and Quux", "--dictionary", "words.tsv")
    assert "does not know 2 words: and, Quux. " in err


def test_the_warning_says_how_many_words_are_copied_and_is_of_what_was_counted_since_the_last() -> None:
    copying: Any = SimpleNamespace(facts=SimpleNamespace(copies_words=True))
    lines = LineTranslator(copying, {"keep_unk": False}, "x")
    for unknown, copied, said in (
        ("Zo Zo Zu", "Zo", "3 words: Zo, Zu. 1 of them are copied into the translation, not Zo, Zu."),
        ("Ze", "Ze", "1 word: Ze. They are copied into the translation."),
        ("Zu Zi", "Zi", "2 words: Zu, Zi. 1 of them are copied into the translation, not Zu."),
    ):
        best: Any = SimpleNamespace(is_cut=False, unknown=unknown.split(), copied=[copied], lost=[])
        lines.count(Block([[best]], {}, [""]))
        assert list(lines.warnings()) == [f"the model does not know {said}"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--dictionary", "words.tsv", "Anna"], "words.tsv, line 1 is not a word, a tab and its translation"),
        (["--sample", "--beam", "2", "Anna"], "--sample and --beam are mutually exclusive"),
        (["--pairs", "a.jsonl", "Anna"], "--pairs needs lines to translate: add --file FILE"),
        (["--sample", "--n-best", "2", "Anna"], "--sample and --n-best are mutually exclusive"),
        (["--dictionary", "words.tsv", "--keep-unk"], "--dictionary and --keep-unk are mutually exclusive"),
        (["--n-best", "2", "Anna"], "--n-best needs a beam of at least that size: add --beam 2"),
        (["--top-k", "2", "Anna"], "--top-k needs sampling: add --sample"),
        (["--top-p", "0.5", "Anna"], "--top-p needs sampling: add --sample"),
        (["--temperature", "2", "Anna"], "--temperature needs sampling: add --sample"),
        (["--seed", "2", "Anna"], "--seed needs sampling: add --sample"),
        (["--length-penalty", "2", "Anna"], "--length-penalty needs beam search: add --beam 5"),
        (
            ["--length-normalization", "mean", "Anna"],
            "--length-normalization needs beam search: add --beam 5",
        ),
        (["--ensemble", "nowhere", "Anna"], "no run in nowhere"),
        (["words.tsv"], "mt translate --file words.tsv"),
        (["runs/tiny", "Anna"], "runs/tiny is a run, not a sentence: give it with --run runs/tiny"),
        (["--file", "words.tsv", "Anna"], "give sentences or --file, not both"),
        (
            ["--file", "nowhere.txt"],
            "nowhere.txt cannot be read (No such file or directory): check its name.",
        ),
        (["--max-length", "3", "--min-length", "4", "Anna"], "at least 4 tokens and EOS do not fit into 4"),
        (["\udcff"], "the command line, line 1 is not UTF-8"),
        (["--precision", "fp16", "--device", "cpu", "Anna"], "such as auto"),
        (["--sample", "--temperature", "nan", "Anna"], "temperature must be a finite number"),
        (["--beam", "2", "--length-penalty", "+nan", "Anna"], "length-penalty must be a finite number"),
        (["--beam", "0", "Anna"], "'--beam': 0 is not in the range"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], says: str, refuse: Refuse) -> None:
    Path("words.tsv").write_text("dog Hund\n")
    sentence = refuse("translate", *arguments)
    assert says in sentence
    # That is for files.
    assert "tail -n" not in sentence


def test_a_dictionary_file() -> None:
    file = Path("words.tsv")
    file.write_text("\ufeffdog\tHund\n\n hot  dog\tWürstchen \r\ndog\tHund\n", encoding="utf-8")
    assert read_dictionary(file) == {"dog": "Hund", "hot dog": "Würstchen"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"dog\tHund\ncat\n", "line 2 is not a word, a tab and its translation"),
        (b"dog\tHund\tan animal\n", "line 1 is not a word, a tab and its translation"),
        (b"dog\tHund\ndog\tKatze\n", "line 2 translates 'dog' differently"),
        ("\u00e9\tA\ne\u0301\tB\n".encode(), "line 2 translates 'é' differently"),
        (b"dog\tH\xfcnd\n", "line 1 is not UTF-8"),
    ],
)
def test_bad_dictionary_files_are_refused(content: bytes, message: str, refuse: Refuse) -> None:
    Path("words.tsv").write_bytes(content)
    assert message in refuse("translate", "--dictionary", "words.tsv", "milk")


def test_what_is_lost_is_counted_or_refused(call: Call, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("the dog, {name}\nthe dog {name} sees\n")
    code, out, err = call("translate", "--file", lines)
    assert (code, out.count("\n"), out.count("{name}")) == (0, 2, 1)
    assert "lost, although it must stay: 1 part, {name}." in err
    code, stopped, err = call("translate", "--file", lines, "--on-error", "stop")
    assert (code, stopped) == (2, out.partition("\n")[0] + "\n")
    assert "line 2: {name} must stay, but is not in its translation." in err


def test_a_page_comes_out_as_one(call: Call, refuse: Refuse, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_bytes(b"<p>the dog sees milk.</p>\r\n<pre>the dog</pre><img alt='the dog'>")
    [line, alt] = call("translate", "the dog sees milk.", "the dog").out.splitlines()
    translated = f'<p>{line}</p>\r\n<pre>the dog</pre><img alt="{alt}">'
    assert call("translate", "--format", "html", "--file", page).out.replace("\r", "") == translated.replace(
        "\r", ""
    )
    assert call("translate", "--format", "markdown", "# the dog", "the dog").out == f"# {alt}\n{alt}\n"
    assert refuse("translate", "--format", "html", "--n-best", "2", "--beam", "2", "a")
    page.write_bytes(b"<p>\xff")
    assert "is not UTF-8" in refuse("translate", "--format", "html", "--file", page)
    assert "'xml' is not one of" in refuse("translate", "--format", "xml", "a")
