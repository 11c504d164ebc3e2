"""`mt translate`: sentences, files and pipes; one line out for one line in."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import mt.cli.translate
import mt.inference.torch_engine
import mt.search.greedy
from mt.cli.unusual_lines import Block
from mt.errors import DataError
from mt.inference.arriving_lines import count_lines, lines_of_file
from mt.run_directory import RunDirectory
from mt.search.request import SearchRequest
from tests.forked import Popen, environment, run

Call = Callable[..., tuple[int, str, str]]
Start = Callable[..., Popen]


@pytest.mark.usefixtures("trained")
def test_sentences_on_the_command_line(call: Call) -> None:
    code, out, err = call("translate", "the dog sees milk.", "", "Anna buys\ntwo red apples!")
    assert code == 0
    assert out == "der Hund sieht Milch.\n\nAnna kauft zwei rote Äpfel!\n"
    assert err == "run: runs/tiny\n"


@pytest.mark.usefixtures("trained")
def test_a_file_ends_its_lines_with_line_feeds_alone(call: Call) -> None:
    file = Path("lines.txt")
    text = "\ufeffthe dog sees milk.\r\n\nAnna sees\u2028milk.\nmy aunt\x0c finds\x85the car."
    file.write_bytes(text.encode())
    code, out, _ = call("translate", "--file", file)
    assert code == 0
    assert out == "der Hund sieht Milch.\n\nAnna sieht Milch.\nmeine Tante findet das Auto.\n"
    file.write_text("")
    assert call("translate", "--file", file) == (0, "", "run: runs/tiny\n")


@pytest.mark.usefixtures("trained")
def test_lines_before_a_broken_one_are_translated(call: Call) -> None:
    file = Path("lines.txt")
    file.write_bytes(b"the dog sees milk.\n\nAnna \xff sees milk.\nAnna sees milk.\n")
    code, out, err = call("translate", "-f", file)
    assert code == 2
    assert out == "der Hund sieht Milch.\n\n"
    assert "lines.txt, line 3 is not UTF-8 (invalid start byte at byte 5)" in err


LATIN_1 = b"Anna \xff sees\xe9 milk."
TOO_LONG = b"car " * 40
BAD = [LATIN_1, TOO_LONG]


@pytest.fixture
def bad_file() -> Path:
    """Three good lines, with one that is not UTF-8 and one that is too long between them, and a good one."""
    file = Path("lines.txt")
    file.write_bytes(b"\n".join([b"the dog sees milk.", *BAD, b"", b"Anna sees milk."]) + b"\n")
    return file


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize(
    ("on_error", "written", "is_piped"), [("empty", [b"", b""], False), ("copy", BAD, True)]
)
def test_bad_lines_are_skipped_and_reported_once(
    on_error: str, written: list[bytes], is_piped: bool, bad_file: Path
) -> None:
    command = [sys.executable, "-m", "mt", "translate", "--on-error", on_error, "--run", "runs/tiny"]
    if not is_piped:
        command += ["--file", str(bad_file)]
    given = bad_file.read_bytes() if is_piped else b""
    ended = run(command, input=given, capture_output=True, env=environment())
    assert ended.returncode == 0
    lines = [b"der Hund sieht Milch.", *written, b"", b"Anna sieht Milch.", b""]
    assert ended.stdout == b"\n".join(lines)
    (warning,) = ended.stderr.decode().splitlines()
    assert warning.startswith("warning: 2 lines could not be translated")
    assert ", line 2 is not UTF-8" in warning


@pytest.mark.usefixtures("trained")
def test_a_bad_line_is_copied_with_all_its_bytes_except_its_end(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"caf\xe9\r\r\nmilk\r\n")
    command = [sys.executable, "-m", "mt", "translate", "--on-error", "copy", "--run", "runs/tiny"]
    ended = run([*command, "--file", str(file)], capture_output=True, env=environment())
    assert ended.stdout.startswith(b"caf\xe9\r\n")


def test_input_that_does_not_block_is_read_to_its_end() -> None:
    program = (
        "from mt.inference.arriving_lines import lines_of_stdin; print('begun', flush=True); "
        "print(list(lines_of_stdin()))"
    )
    theirs, ours = os.pipe()
    os.set_blocking(theirs, False)
    with subprocess.Popen([sys.executable, "-c", program], stdin=theirs, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        for part in (b"the d", b"og\n", b"milk\n"):
            time.sleep(0.1)
            os.write(ours, part)
        os.close(ours)
        os.close(theirs)
        assert process.stdout.read() == b"['the dog', 'milk']\n"


def test_the_file_of_standard_input_is_not_read_twice(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("milk\n")
    program = "from pathlib import Path; from mt.inference.arriving_lines import count_lines; print({})"
    for name, expected in ((file, "None"), (tmp_path / "other", "1")):
        (tmp_path / "other").write_text("milk\n")
        with file.open() as stdin:
            ended = subprocess.run(
                [sys.executable, "-c", program.format(f"count_lines(Path({str(name)!r}))")],
                stdin=stdin,
                capture_output=True,
                text=True,
            )
        assert ended.stdout == f"{expected}\n"


@pytest.mark.usefixtures("trained")
def test_lines_before_a_line_that_is_too_long_are_written(call: Call) -> None:
    file = Path("lines.txt")
    file.write_text("the dog sees milk.\n" * 880 + "car " * 40 + "\nAnna sees milk.\n")
    code, out, err = call("translate", "--file", file)
    assert (code, out) == (2, "der Hund sieht Milch.\n" * 880)
    assert "mt: lines.txt, line 881 has a sentence of 41 tokens" in err
    assert "--start-line 882" in err
    # And so it continues, under the same numbers.
    assert call("translate", "--file", file, "--start-line", "882")[:2] == (0, "Anna sieht Milch.\n")
    assert call("translate", "--file", file, "--start-line", "883")[:2] == (0, "")
    code, out, err = call("translate", "--file", file, "--start-line", "884")
    assert (code, out) == (2, "")
    assert "lines.txt has only 882 lines" in err
    # More lines than Python's own counters count to.
    code, out, err = call("translate", "--file", file, "--start-line", str(2**63 + 1))
    assert (code, out) == (2, "")
    assert "lines.txt has only 882 lines" in err
    code, _, err = call("translate", "--start-line", "2", "Anna")
    assert code == 2
    assert "--start-line is for lines of a file" in err


@pytest.mark.usefixtures("trained")
def test_bad_lines_with_n_best_and_with_prefixes(call: Call, bad_file: Path) -> None:
    def rows(on_error: str) -> list[list[str]]:
        options = ("--beam", "2", "--n-best", "2", "--on-error", on_error, "--run", "runs/tiny")
        code, out, _ = call("translate", "--file", bad_file, *options)
        assert code == 0
        return [line.split("\t") for line in out.split("\n")[:-1]]

    assert [int(row[0]) for row in rows("empty")] == [1, 1, 2, 3, 4, 5, 5]
    assert rows("empty")[2:4] == [["2", "0.0000", "0.0000", ""], ["3", "0.0000", "0.0000", ""]]
    assert rows("copy")[3] == ["3", "0.0000", "0.0000", TOO_LONG.decode()]
    # A line in parts has no n best, and is bad here alone.
    long = "the dog sees milk. my aunt paints the car! Anna buys two red apples today."
    bad_file.write_text(f"Anna\n{long}\nAnna\n")
    assert rows("copy")[2] == ["2", "0.0000", "0.0000", long]
    # The source is what is copied, not the beginning beside it; a beginning may be what is too long.
    bad_file.write_text("milk\t" + "der Hund " * 9 + "\nmilk\tAnna\n")
    options = ("--file", bad_file, "--prefix-column", "--on-error", "copy", "--run", "runs/tiny")
    code, out, err = call("translate", *options)
    assert code == 0
    assert out.splitlines()[0] == "milk"
    assert out.splitlines()[1].startswith("Anna")
    assert "1 line could not be translated and was copied" in err


@pytest.mark.usefixtures("trained")
def test_a_sentence_that_does_not_fit_into_memory_is_a_bad_line(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = mt.search.greedy.greedy_search

    def full(model: object, request: SearchRequest) -> object:
        if request.src_ids.size(1) > 8:
            raise torch.OutOfMemoryError("out of memory")
        return search(model, request)  # type: ignore[arg-type]

    monkeypatch.setattr(mt.inference.torch_engine, "greedy_search", full)
    file = Path("lines.txt")
    file.write_text("the dog sees milk.\nmilk milk milk milk milk milk milk milk milk\nAnna sees milk.\n")
    code, out, err = call("translate", "--file", file)
    assert (code, out) == (2, "der Hund sieht Milch.\n")
    assert "line 2 has a sentence of 9 tokens that does not fit into memory" in err
    out = call("translate", "--file", file, "--on-error", "empty")[1]
    assert out == "der Hund sieht Milch.\n\nAnna sieht Milch.\n"


@pytest.mark.usefixtures("trained")
def test_unknown_words_are_reported_once(call: Call) -> None:
    file = Path("lines.txt")
    file.write_text("Schadenfreude sees milk.\nthe dog!\nSchadenfreude and \x1b[31m sees milk.\n" * 300)
    code, out, err = call("translate", "--file", file, "--run", "runs/tiny")
    assert (code, out.count("\n")) == (0, 900)
    (warning,) = [line for line in err.splitlines() if line.startswith("warning: ")]
    # The noun twice, "and", and the escape sequence, which must not reach the terminal.
    assert " does not know 1,200 of 3,000 words: " in warning
    assert warning.count("Schadenfreude") == 1
    assert "\x1b" not in err
    assert call("translate", "the dog sees milk.", "--run", "runs/tiny")[2] == ""
    assert "1 of 1 word: Zebra" in call("translate", "Zebra!", "--run", "runs/tiny")[2]


@pytest.mark.usefixtures("trained")
def test_a_word_joined_by_punctuation_is_one_unknown_word(call: Call) -> None:
    assert "1 of 3 words: B-4711. " in call("translate", "the dog B-4711!")[2]


@pytest.mark.usefixtures("trained")
def test_with_keep_unk_unknown_words_are_not_announced_as_copied(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt.config.config.Config.copies_words", True)
    assert "copied" in call("translate", "the zebra sees milk.")[2]
    warning = call("translate", "the zebra sees milk.", "--keep-unk")[2]
    assert "1 of 4 words: zebra. " in warning
    assert "copied" not in warning


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize("way", [(), ("--beam", "3"), ("--sample",)])
@pytest.mark.parametrize("most", [1, 4, 5])
def test_max_length_limits_the_tokens(call: Call, most: int, way: tuple[str, ...]) -> None:
    sentences = ["the dog sees milk.", "milk milk milk milk milk", "my aunt buys two red apples today."]

    def words(*options: str) -> list[list[str]]:
        out = call("translate", *way, *options, *sentences)[1]
        return [re.findall(r"\w+|[^\w\s]", line) for line in out.splitlines()]

    free, cut = words(), words("--max-length", str(most))
    assert max(map(len, cut)) == most
    assert any(len(line) > most for line in free)
    assert all(one == other for one, other in zip(cut, free, strict=True) if len(other) <= most)
    # Exactly so many, where at least so many are asked for.
    both = words("--max-length", str(most), "--min-length", str(most))
    assert [len(line) for line in both] == [most] * 3
    if "--beam" not in way:
        assert cut == [line[:most] for line in free]


@pytest.mark.usefixtures("trained")
def test_the_name_of_a_file_is_not_translated(call: Call) -> None:
    Path("lines.txt").write_text("the dog sees milk.\n")
    code, out, err = call("translate", "lines.txt")
    assert (code, out) == (2, "")
    assert "mt translate --file lines.txt" in err
    # What is too long for a name is a sentence like others.
    assert call("translate", "milk. " * 1000)[0] == 0


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize("command", ["translate", "attention"])
def test_a_run_is_not_translated_by_another(command: str, call: Call) -> None:
    code, out, err = call(command, "runs/tiny", "the dog sees milk.")
    assert (code, out) == (2, "")
    assert "runs/tiny is a run, not a sentence: give it with --run runs/tiny." in err


@pytest.mark.usefixtures("trained")
def test_lengths_that_contradict_each_other(call: Call) -> None:
    code, out, err = call("translate", "--max-length", "3", "--min-length", "4", "Anna")
    assert (code, out) == (2, "")
    assert "at least 4 tokens cannot have at most 3" in err
    code, _, err = call("translate", "--max-length", "1", "--prefix", "der Hund", "Anna")
    assert code == 2
    assert "--prefix gives each line a prefix of 2 tokens, but a translation may have at most 1" in err
    assert call("translate", "--max-length", "2", "--prefix", "der Hund", "Anna")[:2] == (0, "der Hund\n")


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize("on_error", ["stop", "empty", "copy"])
def test_a_prefix_that_is_too_long_for_every_line_is_not_an_error_of_one(on_error: str, call: Call) -> None:
    Path("lines").write_text("milk\nAnna\n")
    options = ("--max-length", "3", "--prefix", "Anna kauft das Auto", "--on-error", on_error)
    code, out, err = call("translate", "--file", "lines", *options)
    assert (code, out) == (2, "")
    assert "--prefix gives each line a prefix of 4 tokens, but a translation may have at most 3" in err
    assert "Give a shorter prefix." in err
    assert "--start-line" not in err
    assert "line 1" not in err


@pytest.mark.parametrize("several", [False, True])
def test_lines_are_typed_at_a_prompt_by_a_single_process(
    several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt of the first of several would search alone, while the others wait for its lines."""
    monkeypatch.setattr("mt.processes.size", lambda: 2 if several else 1)
    monkeypatch.setattr(os, "isatty", lambda descriptor: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert mt.cli.translate._Lines(None, None, 1, "", False).are_typed is not several


@pytest.mark.usefixtures("trained")
def test_a_dictionary_is_read_before_the_model_is_asked_whether_it_can_use_one(call: Call) -> None:
    file = Path("words.tsv")
    file.write_text("dog Hund\n")
    code, _, err = call("translate", "--dictionary", file, "the dog sees milk.")
    assert code == 2
    assert "words.tsv, line 1 is not a word, a tab and its translation: 'dog Hund'." in err
    file.write_text("dog\tHund\n")
    code, _, err = call("translate", "--dictionary", file, "the dog sees milk.")
    assert code == 2
    assert "a dictionary needs a model that copies unknown words" in err
    code, _, err = call("translate", "--dictionary", file, "--keep-unk", "the dog sees milk.")
    assert code == 2
    assert "--dictionary replaces unknown words, but --keep-unk keeps them: give one" in err


@pytest.mark.usefixtures("trained")
def test_sampling_and_unknown_words_can_be_asked_for(call: Call) -> None:
    sentence = "the zebra paints two zebra."
    sample = ["translate", "--sample", "--temperature", "3", sentence, sentence, sentence]
    _, out, _ = call(*sample, "--seed", "5")
    assert call(*sample, "--seed", "5")[1] == out
    assert call(*sample, "--seed", "6")[1] != out
    assert len(set(out.splitlines())) > 1
    # A generator would use a part of a larger seed, so that it would draw what another one draws.
    assert call(*sample, "--seed", str(2**32 - 1))[0] == 0
    for seed in (2**32, "9" * 40):
        code, out, err = call(*sample, "--seed", str(seed))
        assert (code, out) == (2, "")
        assert "4294967295" in err
    # Of the likeliest word alone the same is drawn as is searched.
    greedy = call("translate", sentence)[1]
    assert call(*sample[:-2], "--top-k", "1")[1] == greedy
    assert call(*sample[:-2], "--top-p", "0.001")[1] == greedy
    assert call("translate", "--keep-unk", sentence)[0] == 0


@pytest.mark.usefixtures("trained")
def test_constraints_are_obeyed(call: Call) -> None:
    def words(*options: str) -> list[str]:
        return call("translate", *options, "milk milk milk")[1].replace(".", " .").split()

    assert len(words()) < 12
    long = words("--min-length", "12")
    assert len(long) >= 12
    assert len(set(long)) < len(long)
    long = words("--min-length", "12", "--no-repeat-ngram", "1")
    assert len(set(long)) == len(long)


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize("is_pipe", [False, True], ids=["file", "pipe"])
def test_one_bar_for_a_whole_file(is_pipe: bool, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mt.display.terminal_width", lambda: 80)
    monkeypatch.setattr("mt.inference.arriving_lines.MOST_LINES_AT_ONCE", 2)
    monkeypatch.setattr("tqdm.std.tqdm.monitor_interval", 0)
    file = Path("lines.txt")
    lines = "the dog sees milk.\n\nAnna buys the car.\nmy aunt finds milk.\n\n\nAnna sees Quux."
    if is_pipe:
        os.mkfifo(file)
        threading.Thread(target=file.write_text, args=(lines,), daemon=True).start()
    else:
        file.write_text(lines)
    code, out, err = call("translate", "--file", file)
    assert code == 0
    assert out.count("\n") == 7
    # It is drawn over itself, and removed at the end; warnings come after it.
    name, *bars, warning = err.splitlines()
    assert warning.startswith("warning: the model does not know 1 of ")
    assert name == "run: runs/tiny"
    assert len(bars) == err.count("\r")
    assert "lines [" in err
    assert ("0/7 lines" in err) == (not is_pipe)
    assert bars[-1].strip() == ""


@pytest.mark.usefixtures("trained")
def test_warnings_are_not_lost_where_reading_ends(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mt.inference.arriving_lines.MAX_LINE_BYTES", 200)
    Path("lines").write_text("Quux sees milk.\n" + "car " * 40 + "\nmilk\n" + "car " * 60 + "\nmilk\n")
    code, out, err = call("translate", "--file", "lines", "--on-error", "empty")
    assert code == 2
    assert out.count("\n") == 3
    assert "warning: the model does not know 1 of 4 words: Quux" in err
    assert "warning: 1 line could not be translated and was left empty. The first: lines, line 2 has" in err
    assert err.splitlines()[-1].startswith("mt: lines, line 4 is longer than 200 bytes")


@pytest.mark.parametrize("line_end", ["", "\n", "\r\n"])
def test_the_longest_line_may_have_a_line_end(
    line_end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt.inference.arriving_lines.MAX_LINE_BYTES", 5)
    file = tmp_path / "lines"
    file.write_text(f"12345{line_end}", newline="")
    assert list(lines_of_file(file)) == ["12345"]
    for longer in ("123456", "12345\r\r"):
        file.write_text(longer + line_end, newline="")
        with pytest.raises(DataError, match="line 1 is longer than 5 bytes"):
            list(lines_of_file(file))


def test_lines_of_a_file_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    for text in ("", "a", "a\n", "a\nb", "\n\n", "a\r\nb\u2028c\n"):
        file.write_text(text, newline="")
        assert count_lines(file) == len(list(lines_of_file(file)))
    assert count_lines(tmp_path / "none") is None


def test_the_newest_run_is_taken_and_named(call: Call, trained: RunDirectory) -> None:
    other = RunDirectory(trained.path.with_name("other"))
    other.path.mkdir()
    other.config_file.write_text("never: trained\n")
    code, _, err = call("translate", "Anna")
    assert (code, err) == (0, "run: runs/tiny\n")
    code, _, err = call("translate", "Anna", "--run", trained.path)
    assert (code, err) == (0, "")


@pytest.mark.usefixtures("trained")
def test_a_pipe_is_answered_line_by_line_and_may_stay_open(start: Start) -> None:
    with start("translate") as process:
        for line, answer in [("the dog sees milk.", "der Hund sieht Milch.\n"), ("", "\n")]:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            # Nothing else comes: the answer must not wait for more input.
            assert process.stdout.readline() == answer
        process.stdin.write("car " * 40 + "\n")
        process.stdin.flush()
        # It ends although the pipe is open, and while a thread of it still reads there.
        assert process.wait(timeout=120) == 2
        assert "mt: standard input, line 3 has a sentence of 41 tokens" in process.stderr.read()


def test_two_blocks_in_flight_are_written_in_order_before_waiting_for_lines() -> None:
    second_began = threading.Event()
    written: list[tuple[str, str]] = []

    def translate(block: list[str], number: int, check: Callable[[], None]) -> Block:
        second_began.set() if number > 1 else second_began.wait(10)
        return Block([(line, str(number)) for line in block], [], {}, None)

    def blocks() -> Iterator[list[str]]:
        yield from (["a", "b"], ["c"], [])
        assert written == [("a", "1"), ("b", "1"), ("c", "3")]
        yield ["d"]

    for done in mt.cli.translate._in_order(translate, blocks(), 1, at_once=2):
        written += done.pairs
    assert written[3:] == [("d", "4")]


@pytest.mark.usefixtures("trained")
def test_ctrl_c_while_it_waits_for_a_line(start: Start) -> None:
    # Also: what goes out is UTF-8 whatever the locale.
    with start("translate", PYTHONIOENCODING="ascii", LC_ALL="C") as process:
        process.stdin.write("Anna buys two red apples.\n")
        process.stdin.flush()
        assert process.stdout.readline() == "Anna kauft zwei rote Äpfel.\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
        assert process.stderr.read() == "run: runs/tiny\n"


def test_ctrl_c_ends_a_search_on_several_threads_at_its_next_step(start_endless: Start) -> None:
    # Two batches, each of which takes minutes.
    with start_endless("translate", *["milk " * 200] * 8) as process:
        try:
            while "searching in at-once_1" not in (said := process.stderr.readline()):
                assert said, "it ended"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()


@pytest.mark.usefixtures("trained")
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


@pytest.mark.usefixtures("trained")
def test_only_what_translating_needs_is_imported(start: Start) -> None:
    out, err = start("translate", "the dog sees milk.", python=("-X", "importtime")).communicate()
    assert out == "der Hund sieht Milch.\n"
    packages = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in err.splitlines() if "|" in line}
    assert {"torch", "tokenizers"} <= packages
    assert not {"datasets", "tensorboard", "sacrebleu", "pyarrow", "sympy"} & packages
