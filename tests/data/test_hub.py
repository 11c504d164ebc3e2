"""Corpora of the Hub: the real loading code against a Hub on loopback, with its faults."""

import re
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.data.corpora import Pairs, corpus

Hub = Any  # the server in conftest.py
Outcome = dict[str, Any]

PAIRS = [(f"sentence {i}", f"Satz {i}") for i in range(400)]

OPUS_BOOKS_CARD = """---
configs:
- config_name: en-de
  data_files: en-de/train.jsonl
- config_name: en-it
  data_files: en-it/train.jsonl
---
"""


def jsonl(pairs: Pairs) -> str:
    return str(corpus("jsonl", "train", pairs)["train.jsonl"])


def three_splits(pairs: Pairs) -> dict[str, str]:
    return {"train.jsonl": jsonl(pairs[4:]), "val.jsonl": jsonl(pairs[:2]), "test.jsonl": jsonl(pairs[2:4])}


def source_texts(pairs: Pairs) -> list[str]:
    return [source for source, _ in pairs]


@pytest.fixture(scope="module")
def main_hub(new_hub: Callable[[], Hub]) -> Hub:
    hub = new_hub()
    hub.add("bentrevett/multi30k", three_splits(PAIRS[:10]), revision="v1")
    hub.add("bentrevett/multi30k", three_splits(PAIRS))
    books = {
        "README.md": OPUS_BOOKS_CARD,
        "en-de/train.jsonl": jsonl(PAIRS),
        "en-it/train.jsonl": jsonl(PAIRS),
    }
    hub.add("Helsinki-NLP/opus_books", books)
    hub.add("org/gated", three_splits(PAIRS))
    hub.repositories["org/gated"].is_gated = True
    hub.add("org/private", three_splits(PAIRS))
    hub.repositories["org/private"].refuses_the_token = True
    hub.add("org/script", {"script.py": "raise SystemExit('this must not run')", "data.zip": "x"})
    hub.add("org/empty", {"README.md": "nothing here"})
    hub.add("org/only-test", {"test.jsonl": jsonl(PAIRS)})
    hub.add("org/broken", {"train.jsonl": jsonl(PAIRS)[:-9]})
    holes = {
        "train.jsonl": '{"en": "a", "de": null}\n' + jsonl(PAIRS),
        "test.jsonl": '{"en": "a", "de": null}\n',
    }
    hub.add("org/holes", holes)
    hub.add("org/cells", {f"{split}.csv": "en,de\nnull,NA\nnan,N/A\n" for split in ("train", "val", "test")})
    return hub


CONFIGS: dict[str, dict[str, object]] = {
    "good": {"path": "bentrevett/multi30k"},
    "tag": {"path": "bentrevett/multi30k", "revision": "v1"},
    "named": {"path": "Helsinki-NLP/opus_books", "name": "en-de"},
    "cells": {"path": "org/cells"},
    "mixed": {
        "path": "bentrevett/multi30k",
        "mix": "Helsinki-NLP/opus_books name=en-de weight=2; bentrevett/multi30k revision=v1",
    },
}
WRONG: list[tuple[dict[str, object], str]] = [
    (
        {"path": "bentrevett/multi30k", "mix": "Helsinki-NLP/opus_books"},
        r"^data\.sources\.mix1: .*configs: \['en-de', 'en-it'\]",
    ),
    (
        {"path": "Helsinki-NLP/opus_books", "name": "en-ti"},
        r"opus_books \(en-ti\) .*Available: \['en-de', 'en-it'\]",
    ),
    ({"path": "org/nothing"}, r"^data\.path: org/nothing .*doesn't exist.* Check the name"),
    ({"path": "org/gated"}, "org/gated .* is a gated dataset.* log in with `hf auth login`"),
    ({"path": "org/private"}, "org/private .*401 Unauthorized.* log in"),
    ({"path": "bentrevett/multi30k", "revision": "v7"}, "Revision 'v7' doesn't exist"),
    ({"path": "bentrevett/multi30k", "tgt": "ger"}, "no column 'ger', which data.tgt names; .* 'de', 'en'"),
    ({"path": "org/script"}, "scripts are no longer supported"),
    ({"path": "org/empty"}, "org/empty cannot be loaded .*doesn't contain any data files"),
    ({"path": "org/only-test"}, "org/only-test has no training split, only 'test'"),
    ({"path": "org/broken"}, "org/broken cannot be loaded from the Hub: JSON parse error"),
    ({"path": "org/holes"}, "^the test split of org/holes, row 1: the target is missing"),
]


@pytest.fixture(scope="module")
def outcomes(main_hub: Hub) -> dict[str, Outcome]:
    """All of them in one process, for importing `datasets` takes longer than loading."""
    return dict(zip(CONFIGS, main_hub.load(*CONFIGS.values()), strict=True))


def test_what_is_loaded_is_recorded_with_its_commit(main_hub: Hub, outcomes: dict[str, Outcome]) -> None:
    multi30k = main_hub.repositories["bentrevett/multi30k"].references
    good, description = outcomes["good"], outcomes["good"]["description"]
    assert good["train"] == {"src": source_texts(PAIRS[4:]), "tgt": [target for _, target in PAIRS[4:]]}
    assert good["test"]["src"] == source_texts(PAIRS[2:4])
    assert tuple(description["sources"][0][key] for key in ("kind", "revision")) == ("hub", multi30k["main"])
    assert description["splits"]["validation"]["origin"] == "given"
    assert good["log"] == ""
    tag = outcomes["tag"]
    assert tag["train"]["src"] == source_texts(PAIRS[4:10])
    assert tag["description"]["sources"][0]["revision"] == multi30k["v1"]
    cells = {"src": ["null", "nan"], "tgt": ["NA", "N/A"]}
    assert (outcomes["cells"]["train"], outcomes["cells"]["test"]) == (cells, cells)
    splits = outcomes["named"]["description"]["splits"]
    assert splits["train"]["from"] == ["the train split of Helsinki-NLP/opus_books (en-de)"]
    assert splits["test"]["origin"] == "carved"
    assert sum(split["pairs"] for split in splits.values()) == len(PAIRS)
    books = main_hub.repositories["Helsinki-NLP/opus_books"].references["main"]
    sources = outcomes["mixed"]["description"]["sources"]
    assert [source["revision"] for source in sources] == [multi30k["main"], books, multi30k["v1"]]
    assert outcomes["mixed"]["train"]["src"] == source_texts([*PAIRS[4:], *PAIRS, *PAIRS[4:10]])


def test_what_can_be_wrong_is_reported_in_the_words_of_the_library(
    main_hub: Hub, outcomes: dict[str, Outcome]
) -> None:
    for (config, message), outcome in zip(WRONG, main_hub.load(*(c for c, _ in WRONG)), strict=True):
        assert re.search(message, outcome.get("error", "")), (config, outcome)
        assert "\n" not in outcome["error"]


def test_an_unreachable_hub_is_reported_at_once_and_the_cache_still_serves(
    main_hub: Hub, outcomes: dict[str, Outcome], new_hub: Callable[[], Hub]
) -> None:
    unreachable = new_hub()
    unreachable.home = main_hub.home
    with socket.create_server(("127.0.0.1", 0)) as closed_again:
        address = f"127.0.0.1:{closed_again.getsockname()[1]}"
    unreachable.endpoint = f"http://user:secret@{address}"
    commits = main_hub.repositories["bentrevett/multi30k"].references
    missing, wrong_name, books, newest, older = unreachable.load(
        {"path": "org/nothing"},
        {"path": "Helsinki-NLP/opus_books", "name": "en-it"},
        CONFIGS["named"],
        {"path": "bentrevett/multi30k", "revision": commits["v1"]},
        {"path": "bentrevett/multi30k", "revision": commits["main"]},
    )
    for outcome, name in ((missing, "org/nothing"), (wrong_name, r"opus_books \(en-it\)")):
        assert re.search(rf"{name} .*The Hub is offline here.* load it once", outcome["error"])
    assert f"http://{address} does not answer" in missing["log"]
    assert "secret" not in missing["log"] + missing["error"]
    for outcome, name in ((books, "named"), (newest, "tag")):
        assert outcome["train"] == outcomes[name]["train"]
        assert (
            outcome["description"]["sources"][0]["revision"]
            == outcomes[name]["description"]["sources"][0]["revision"]
        )
    # A cached commit is never taken for another.
    assert re.search(f"requests commit {commits['main']} .*only commit {commits['v1']} is", older["error"])
    assert sum(outcome["seconds"] for outcome in (missing, wrong_name, books)) < 3


@pytest.mark.slow
def test_a_hub_that_fails_for_a_moment_is_asked_again(new_hub: Callable[[], Hub]) -> None:
    hub = new_hub()
    hub.add("org/good", three_splits(PAIRS))
    hub.num_busy_answers, hub.num_cut_bodies = 4, 2
    (outcome,) = hub.load({"path": "org/good"})
    assert (hub.num_busy_answers, hub.num_cut_bodies) == (0, 0)
    assert outcome["train"]["src"] == source_texts(PAIRS[4:])


def test_a_hub_that_never_answers_is_offline_after_the_time_limit(new_hub: Callable[[], Hub]) -> None:
    hub = new_hub()
    hub.add("org/good", three_splits(PAIRS))
    hub.load({"path": "org/good"})
    hub.is_silent = True
    missing, cached = hub.load(
        {"path": "org/other", "hub_timeout_seconds": 1.5}, {"path": "org/good", "hub_timeout_seconds": 1.5}
    )
    assert "org/other cannot be loaded" in missing["error"]
    assert 0.9 < missing["seconds"] < 3
    assert cached["train"]["src"] == source_texts(PAIRS[4:])
    assert cached["seconds"] < 1
