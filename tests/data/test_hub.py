"""Corpora of the Hub: the real loading code against a Hub on loopback, with its faults."""

import io
import json
import socket
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Hub = Any  # the server in conftest.py
Outcome = dict[str, Any]

PAIRS = [(f"sentence {i}", f"Satz {i}") for i in range(400)]
CONVERTED = "refs/convert/parquet"

OPUS_BOOKS_CARD = """---
configs:
- config_name: en-de
  data_files: en-de/train.jsonl
- config_name: en-it
  data_files: en-it/train.jsonl
---
"""


def jsonl(pairs: list[tuple[str, str]]) -> str:
    return "".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in pairs)


def nested_parquet(pairs: list[tuple[str, str]]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"translation": [{"en": en, "de": de} for en, de in pairs]}), file)
    return file.getvalue()


def three_splits(pairs: list[tuple[str, str]]) -> dict[str, str]:
    return {"train.jsonl": jsonl(pairs[4:]), "val.jsonl": jsonl(pairs[:2]), "test.jsonl": jsonl(pairs[2:4])}


def source_texts(pairs: list[tuple[str, str]]) -> list[str]:
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
    shards = {
        f"en-de/{split}/0000.parquet": nested_parquet(PAIRS) for split in ("train", "validation", "test")
    }
    hub.add("org/script", shards | {"en-fr/train/0000.parquet": nested_parquet(PAIRS)}, revision=CONVERTED)
    hub.add("org/empty", {"README.md": "nothing here"})
    hub.add("org/only-test", {"test.jsonl": jsonl(PAIRS)})
    hub.add("org/broken", {"train.jsonl": jsonl(PAIRS)[:-9]})
    holes = {
        "train.jsonl": '{"en": "a", "de": null}\n' + jsonl(PAIRS),
        "test.jsonl": '{"en": "a", "de": null}\n',
    }
    hub.add("org/holes", holes)
    return hub


CONFIGS: dict[str, dict[str, object]] = {
    "good": {"path": "bentrevett/multi30k"},
    "tag": {"path": "multi30k", "revision": "v1"},
    "legacy": {"path": "opus_books", "name": "en-de"},
    "converted": {"path": "org/script", "revision": CONVERTED, "name": "en-de"},
    "mixed": {"path": "multi30k", "mix": "opus_books name=en-de weight=2; multi30k revision=v1"},
    "mixed, no name": {"path": "multi30k", "mix": "opus_books"},
    "no name": {"path": "opus_books"},
    "wrong name": {"path": "opus_books", "name": "en-ti"},
    "not found": {"path": "org/nothing"},
    "gated": {"path": "org/gated"},
    "wrong token": {"path": "org/private"},
    "wrong revision": {"path": "bentrevett/multi30k", "revision": "v7"},
    "wrong column": {"path": "bentrevett/multi30k", "tgt": "ger"},
    "script": {"path": "org/script"},
    "converted, no such folder": {"path": "org/script", "revision": CONVERTED, "name": "en-de-fr"},
    "empty": {"path": "org/empty"},
    "only test": {"path": "org/only-test"},
    "broken": {"path": "org/broken"},
    "holes": {"path": "org/holes"},
    "legacy script": {"path": "iwslt2017"},
}


@pytest.fixture(scope="module")
def outcomes(main_hub: Hub) -> dict[str, Outcome]:
    """All of them in one process, for importing `datasets` takes longer than loading."""
    return dict(zip(CONFIGS, main_hub.load(*CONFIGS.values()), strict=True))


def test_a_corpus_with_three_splits(main_hub: Hub, outcomes: dict[str, Outcome]) -> None:
    good = outcomes["good"]
    assert good["train"] == {"src": source_texts(PAIRS[4:]), "tgt": [target for _, target in PAIRS[4:]]}
    assert good["test"]["src"] == source_texts(PAIRS[2:4])
    description = good["description"]
    assert description["kind"] == "hub"
    assert description["revision"] == main_hub.repositories["bentrevett/multi30k"].references["main"]
    assert description["splits"]["validation"]["origin"] == "given"
    assert good["log"] == ""


def test_a_revision_is_what_is_loaded_and_its_commit_is_recorded(
    main_hub: Hub, outcomes: dict[str, Outcome]
) -> None:
    assert outcomes["tag"]["train"]["src"] == source_texts(PAIRS[4:10])
    commit = main_hub.repositories["bentrevett/multi30k"].references["v1"]
    assert outcomes["tag"]["description"]["revision"] == commit


def test_a_legacy_name_with_a_configuration_and_carved_splits(outcomes: dict[str, Outcome]) -> None:
    legacy = outcomes["legacy"]
    splits = legacy["description"]["splits"]
    assert splits["train"]["from"] == ["the train split of Helsinki-NLP/opus_books (en-de)"]
    assert splits["test"]["origin"] == "carved"
    assert sum(split["pairs"] for split in splits.values()) == len(PAIRS)


def test_sources_of_a_mix_each_with_a_configuration_and_a_revision(
    main_hub: Hub, outcomes: dict[str, Outcome]
) -> None:
    mixed = outcomes["mixed"]
    sources = mixed["description"]["sources"]
    multi30k = main_hub.repositories["bentrevett/multi30k"].references
    books = main_hub.repositories["Helsinki-NLP/opus_books"].references["main"]
    assert [source["revision"] for source in sources] == [multi30k["main"], books, multi30k["v1"]]
    assert [source["name"] for source in sources] == [None, "en-de", None]
    assert mixed["train"]["src"] == source_texts([*PAIRS[4:], *PAIRS, *PAIRS[4:10]])
    assert mixed["description"]["leaks"]["test"]["pair"] == {"exact": 2, "normalised": 2}
    assert outcomes["mixed, no name"]["error"].startswith("data.mix, opus_books: Helsinki-NLP/opus_books has")


def test_a_script_repository_loads_in_its_converted_form(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["converted"]["train"]["src"] == source_texts(PAIRS)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            "no name",
            "Helsinki-NLP/opus_books has several configurations: set data.name to one of 'en-de', 'en-it'.",
        ),
        (
            "wrong name",
            "data.name: Helsinki-NLP/opus_books has no configuration 'en-ti', only 'en-de', 'en-it'. "
            "Did you mean 'en-it'?",
        ),
        ("not found", "data.path: there is no corpus 'org/nothing' on the Hub"),
        ("gated", "data.path: org/gated is gated: accept its terms at http://127.0.0.1"),
        ("wrong token", "data.path: the Hub refuses access to org/private: "),
        (
            "wrong revision",
            "data.revision: bentrevett/multi30k has no commit, branch or tag 'v7' on the Hub.",
        ),
        (
            "wrong column",
            "the train split of bentrevett/multi30k has no column 'ger', which data.tgt names; "
            "its columns are 'en', 'de'.",
        ),
        (
            "script",
            "org/script is a loading script, and scripts are not run. Use the Hub's conversion of it: set "
            "data.revision=refs/convert/parquet and data.name to the folder there that has your languages. "
            "The folders are 'en-de', 'en-fr'.",
        ),
        (
            "converted, no such folder",
            "data.name: org/script has no folder 'en-de-fr' at refs/convert/parquet. "
            "The folders are 'en-de', 'en-fr'.",
        ),
        ("empty", "org/empty is on the Hub but `datasets` cannot load it"),
        ("only test", "org/only-test has no training split, only 'test'"),
        ("broken", "org/broken is on the Hub but `datasets` cannot load it: JSON parse error"),
        ("holes", "the test split of org/holes, row 1: the target is missing"),
        ("legacy script", "data.path: there is no corpus 'IWSLT/iwslt2017' on the Hub"),
    ],
)
def test_what_can_be_wrong_is_reported_in_a_sentence(
    outcomes: dict[str, Outcome], case: str, message: str
) -> None:
    assert outcomes[case].get("error", "").startswith(message)
    assert "\n" not in outcomes[case]["error"]


def test_an_unreachable_hub_is_reported_at_once_and_the_cache_still_serves(
    main_hub: Hub, outcomes: dict[str, Outcome], new_hub: Callable[[], Hub]
) -> None:
    assert "error" not in outcomes["good"]  # what main_hub's users have cached
    unreachable = new_hub()
    unreachable.home = main_hub.home
    with socket.create_server(("127.0.0.1", 0)) as closed_again:
        unreachable.endpoint = f"http://127.0.0.1:{closed_again.getsockname()[1]}"
    commits = main_hub.repositories["bentrevett/multi30k"].references
    missing, cached, wrong_name, books, converted, no_folder, newest, older, tagged = unreachable.load(
        {"path": "org/nothing"},
        {"path": "org/holes", "name": None},
        {"path": "opus_books", "name": "en-it"},
        {"path": "opus_books", "name": "en-de"},
        CONFIGS["converted"],
        CONFIGS["converted, no such folder"],
        {"path": "bentrevett/multi30k", "revision": commits["v1"]},
        {"path": "bentrevett/multi30k", "revision": commits["main"]},
        {"path": "bentrevett/multi30k", "revision": "v0"},
    )
    assert missing["error"].startswith(f"org/nothing is not cached, the Hub ({unreachable.endpoint}) cannot")
    assert "Check the network and run this once online, or set data.path to a folder" in missing["error"]
    assert "builtin:primer" in missing["error"]
    assert f"{unreachable.endpoint} does not answer" in missing["log"]
    assert "treated as offline" in missing["log"]
    assert cached["error"].startswith("the test split of org/holes, row 1")
    assert "is not cached for this data.name" in wrong_name["error"]
    assert "'en-de'" in wrong_name["error"]
    assert books["train"] == outcomes["legacy"]["train"]
    assert books["description"] == outcomes["legacy"]["description"]
    assert "Using Helsinki-NLP/opus_books (en-de) from the cache, at commit" in books["log"]
    assert converted["description"] == outcomes["converted"]["description"]
    assert no_folder["error"].startswith("org/script (en-de-fr) is not cached, the Hub")
    assert newest["train"] == outcomes["tag"]["train"]
    assert "only the Hub knows" not in newest["log"]
    assert f"newest cached commit is {commits['v1']}" in older["error"]
    # A tag cannot be compared with the commit in the cache.
    assert (
        f"at commit {commits['v1']}. Whether that is data.revision=v0, only the Hub knows." in tagged["log"]
    )
    assert sum(outcome["seconds"] for outcome in (missing, cached, books)) < 3


def test_a_hub_that_is_busy_for_a_moment_is_asked_again(new_hub: Callable[[], Hub]) -> None:
    hub = new_hub()
    hub.add("org/good", three_splits(PAIRS))
    hub.num_busy_answers = 2
    (outcome,) = hub.load({"path": "org/good"})
    assert outcome["train"]["src"] == source_texts(PAIRS[4:])
    assert outcome["log"] == ""


@pytest.mark.slow
def test_a_download_that_breaks_off_is_fetched_again(new_hub: Callable[[], Hub]) -> None:
    hub = new_hub()
    hub.add("org/good", three_splits(PAIRS))
    hub.num_cut_bodies = 2
    (outcome,) = hub.load({"path": "org/good"})
    assert hub.num_cut_bodies == 0
    assert outcome["train"]["src"] == source_texts(PAIRS[4:])


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["silent", "busy"])
def test_a_hub_that_never_answers_is_offline_after_the_time_limit(
    new_hub: Callable[[], Hub], fault: str
) -> None:
    hub = new_hub()
    hub.add("org/good", three_splits(PAIRS))
    hub.load({"path": "org/good"})
    hub.is_silent, hub.num_busy_answers = fault == "silent", 1_000_000 if fault == "busy" else 0
    missing, cached = hub.load(
        {"path": "org/other", "hub_timeout_seconds": 1.5}, {"path": "org/good", "hub_timeout_seconds": 1.5}
    )
    assert missing["error"].startswith("org/other is not cached, the Hub")
    assert 0.9 < missing["seconds"] < 3
    assert cached["train"]["src"] == source_texts(PAIRS[4:])
    assert cached["seconds"] < 1


@pytest.mark.slow
def test_a_cached_commit_is_never_taken_for_another_in_silence(new_hub: Callable[[], Hub]) -> None:
    hub = new_hub()
    old = hub.add("org/good", three_splits(PAIRS[:10]))
    hub.load({"path": "org/good"})
    new = hub.add("org/good", three_splits(PAIRS))
    hub.repositories["org/good"].is_gated = True  # the new commit is announced but cannot be downloaded
    (outcome,) = hub.load({"path": "org/good"})
    assert outcome["error"].startswith(f"Downloading org/good at commit {new} failed, and only commit {old}")
    assert f"data.revision={old}" in outcome["error"]
