"""`mt score` and `mt translate --n-best`: what goes in and what comes out."""

import json
import math
import os
import re
import threading
from pathlib import Path

import pytest

from mt.run_directory import RunDirectory
from tests.fixture_types import Call, Ended, Start


@pytest.fixture
def score(call: Call, trained: RunDirectory) -> Call:
    """Calls ``mt score`` with these pairs as its standard input."""

    def run(pairs: str, *options: str) -> Ended:
        Path("pairs.tsv").write_text(pairs, encoding="utf-8")
        stdin, before = os.dup(0), threading.enumerate()
        try:
            with Path("pairs.tsv").open("rb") as file:
                os.dup2(file.fileno(), 0)
            return call("score", "--run", trained.path, *options)
        finally:
            # A thread that still reads would take the input of the next call.
            for thread in {*threading.enumerate()} - {*before}:
                thread.join(1)
            os.dup2(stdin, 0)
            os.close(stdin)

    return run


@pytest.mark.usefixtures("scored_as_in_search")
def test_the_n_best_of_a_search_are_scored_as_it_scored_them(call: Call, score: Call) -> None:
    lines = ["the dog sees milk.", "Anna buys two red apples."]
    mean = ("--length-normalization", "mean", "--length-penalty", "0.5")
    beam = ("translate", "--beam", "4", "--n-best", "3", "--precision", "float32")
    rows, of_mean = (
        [line.split("\t") for line in call(*beam, *options, *lines).out.splitlines()]
        for options in ((), mean)
    )
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] * 3
    assert [row[3] for row in rows][::3] == ["der Hund sieht Milch.", "Anna kauft zwei rote Äpfel."]
    code, out, err = score("".join(f"{lines[int(row[0]) - 1]}\t{row[3]}\n" for row in rows))
    assert code == 0
    scored = [line.split("\t") for line in out.splitlines()]
    total, num_tokens = 0.0, 0
    for row, (log_prob, length, perplexity, unknown) in zip(rows, scored, strict=True):
        assert float(log_prob) == pytest.approx(float(row[2]), abs=2e-4)
        assert float(perplexity) == pytest.approx(math.exp(-float(row[2]) / int(length)), abs=2e-2)
        assert unknown == "0"
        # As Wu et al. (2016) normalise it.
        assert float(row[1]) == pytest.approx(6 * float(row[2]) / (5 + int(length)), abs=2e-4)
        total, num_tokens = total + float(log_prob), num_tokens + int(length)
    summary = re.search(
        rf"6 translations, {num_tokens} tokens, 0 of them unknown: log-probability (\S+), perplexity (\S+)\n",
        err,
    )
    assert summary
    assert float(summary[1]) == pytest.approx(total, abs=1e-3)
    assert float(summary[2]) == pytest.approx(math.exp(-total / num_tokens), abs=1e-3)
    # Of "der Hund sieht Milch." and EOS.
    assert float(of_mean[0][1]) == pytest.approx(float(of_mean[0][2]) / 6**0.5, abs=2e-4)


def test_unknown_words_are_counted(score: Call) -> None:
    _, out, err = score("the dog sees milk.\tder Zebra Zebra sieht.\nmilk\tZebra\n")
    assert [row.split("\t")[3] for row in out.splitlines()] == ["2", "1"]
    assert "3 of them unknown" in err


@pytest.mark.usefixtures("trained")
def test_an_open_pipe_is_answered_line_by_line(start: Start) -> None:
    with start("score", "--tokens") as process:
        process.stdin.write("the dog sees milk.\tder Hund sieht Quux.\n")
        process.stdin.flush()
        log_prob, length, _, unknown, tokens = process.stdout.readline().split("\t")
        assert (length, unknown) == ("6", "1")
        pairs = [token.rsplit("=", 1) for token in tokens.split()]
        assert [pair[0] for pair in pairs][:4] == ["der", "Hund", "sieht", "<unk>"]
        assert sum(float(pair[1]) for pair in pairs) == pytest.approx(float(log_prob), abs=1e-3)
        process.stdin.write("no tab\n")
        process.stdin.flush()
        assert process.wait(timeout=120) == 2
        assert "standard input, line 2 has 0 tabs, but must have exactly one" in process.stderr.read()


def test_a_pair_that_is_too_long_is_named_by_its_line_after_the_lines_before_it(
    score: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt.cli.lines.MOST_LINES_AT_ONCE", 2)
    good, bad = "milk\tMilch\n", "the car " * 8 + "\tMilch\n"
    code, out, err = score(good * 4 + bad + good + bad)
    assert (code, out.count("\n")) == (2, 4)
    assert "mt: line 5: the source has 17 tokens" in err
    assert score(bad + good)[:2] == (2, "")
    assert "line 1 has 2 tabs" in score("milk\tMilch\tMilch\n").err
    assert score("") == (0, "", "")


def test_json_has_the_tokens(score: Call) -> None:
    [line] = score("the dog sees milk.\tder Hund sieht Quux.\n", "--json").out.splitlines()
    pair = json.loads(line)
    assert {*pair} == {"log_prob", "perplexity", "tokens", "log_probs", "num_unknown"}
    assert sum(pair["log_probs"]) == pytest.approx(pair["log_prob"])
    assert pair["tokens"][:4] == ["der", "Hund", "sieht", "<unk>"]
    assert pair["num_unknown"] == 1
