"""The service in this process: answers, refusals, and its description."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fastapi.testclient import TestClient

from mt.cli.app import app as cli
from mt.errors import CheckpointError
from mt.inference.loaded_model import LoadedModel
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam
from mt.serving.api import TranslateRequest
from mt.serving.app import Service
from mt.serving.batching import BatchedTranslator
from mt.serving.log import LogHandler
from tests.serving.conftest import Gate

SENTENCE = "Anna buys two red apples today."
JSON_TYPE = {"Content-Type": "application/json"}


def client_of(*runs: BatchedTranslator, **options: Any) -> TestClient:
    service = Service(runs, **{"max_characters": 200, "max_seconds": 60, **options})
    return TestClient(service.app(), raise_server_exceptions=False)


@pytest.fixture
def client(batched: BatchedTranslator) -> TestClient:
    return client_of(batched)


def test_texts_are_translated_as_the_translator_does(client: TestClient, reference: ModelTranslator) -> None:
    assert (client.head("/health").status_code, client.head("/health").text) == (200, "")
    [served] = client.get("/health").json()["runs"]
    assert served.pop("checkpoint").startswith("step_")
    assert served == {
        "run": "tiny", "src": "en", "tgt": "de", "waiting": 0, "example": "my aunt finds a house!",
        "directions": [{"src": "en", "tgt": "de"}],
        "engine": "torch", "precision": "float32", "device": "cpu", "why": "it was asked for",
    }  # fmt: skip
    answer = client.post("/translate", json={"text": SENTENCE})
    [[alone]] = reference.n_best([SENTENCE])
    [result] = answer.json()["results"]
    assert result["source"] == SENTENCE
    [translation] = result["translations"]
    assert translation.pop("text") == alone.text
    assert (translation.pop("unknown"), translation.pop("copied")) == ([], [])
    assert translation == pytest.approx({"score": alone.score, "log_prob": alone.log_prob}, abs=1e-4)
    texts = [SENTENCE, "", "the dog sees\n  a house.", "milk. " * 20]
    asked = {"texts": texts, "beam": 4, "alignment": True, "join_lines": True}
    results = client.post("/translate", json=asked).json()["results"]
    assert [each["source"] for each in results] == [" ".join(text.split()) for text in texts]
    assert results[3]["translations"][0]["alignment"] is None
    asked |= {"texts": texts[:3], "n_best": 3}
    results = client.post("/translate", json=asked).json()["results"]
    expected = reference.n_best([each["source"] for each in results], strategy=Beam(4), num_best=3)
    for result, best_first in zip(results, expected, strict=True):
        assert [each["text"] for each in result["translations"]] == [each.text for each in best_first]
        for each in result["translations"]:
            words = len(result["source"].split()), len(each["text"].split())
            assert all(0 <= s < words[0] and 0 <= t < words[1] for s, t in each["alignment"])


def test_each_line_of_a_text_comes_back_as_a_line(client: TestClient, reference: ModelTranslator) -> None:
    lines = [SENTENCE, "", "  the dog sees milk.", "Anna\u200b buys milk.", ""]
    expected = reference.translate([" ".join(line.split()) for line in lines])
    for end in ("\n", "\r\n", "\r"):
        texts = [end.join(lines), "the dog"]
        asked = {"texts": texts, "beam": 1, "alignment": True}
        [result, other] = client.post("/translate", json=asked).json()["results"]
        assert result["translations"][0]["text"].split("\n") == expected
        assert result["source"].split("\n") == [SENTENCE, "", "the dog sees milk.", "Anna buys milk.", ""]
        assert result["translations"][0]["alignment"] is None
        assert other["translations"][0]["alignment"]
    # A menu, which is longer than the model reads.
    text = "\n".join(["milk"] * 20)
    [result] = client.post("/translate", json={"text": text}).json()["results"]
    assert result["translations"][0]["text"].split("\n") == reference.translate(["milk"]) * 20
    [result] = client.post("/translate", json={"text": text, "join_lines": True}).json()["results"]
    assert result["translations"][0]["text"] == " ".join(reference.translate(["milk " * 15, "milk " * 5]))


def test_a_page_is_translated_between_texts(client: TestClient, reference: ModelTranslator) -> None:
    pages = ["<p>the dog</p>\r\n<hr title='milk'>", f"<i>{SENTENCE}</i>", "<b>1</b>"]
    dog, milk, sentence = reference.translate(["the dog", "milk", SENTENCE])
    results = client.post("/translate", json={"texts": pages, "format": "html"}).json()["results"]
    assert [each["source"] for each in results] == pages
    translated = [f'<p>{dog}</p>\r\n<hr title="{milk}">', f"<i>{sentence}</i>", "<b>1</b>"]
    assert [each["translations"][0]["text"] for each in results] == translated
    refused = client.post("/translate", json={"text": "a", "format": "html", "alignment": True})
    assert "with format html there is one translation, without alignment" in refused.json()["error"]
    deep = client.post("/translate", json={"text": "<b>" * 250 + "a" + "</b>" * 250, "format": "html"})
    assert deep.status_code == 422


def test_a_run_is_chosen_by_its_name_or_its_languages(translator: ModelTranslator) -> None:
    runs = [BatchedTranslator(lambda: translator, name, max_waiting=9) for name in ("tiny", "other")]
    runs[1].translator = copy(translator)
    runs[1].translator.facts = replace(translator.facts, src="de", tgt="en")
    client = client_of(*runs)
    for chosen, name in (({"run": "other"}, "other"), ({"src": "en"}, "tiny"), ({"tgt": "en"}, "other")):
        assert client.post("/translate", json={"text": "x", **chosen}).json()["run"] == name
    for chosen, problem in (
        ({}, "several runs match: choose one"),
        ({"run": "third"}, "there is no such run"),
        ({"run": "tiny", "src": "de"}, "there is no such run"),
    ):
        refused = client.post("/translate", json={"text": "x", **chosen})
        assert refused.status_code == 422
        assert refused.json()["error"] == f"{problem}. The runs are tiny (en to de), other (de to en)."
    assert client.post("/translate", json={"text": "x", "tgt": "en"}).json()["src"] == "de"


def test_a_direction_is_chosen_by_its_languages_and_its_id_is_never_shown(
    both_ways: Callable[[str], LoadedModel], translator: ModelTranslator
) -> None:
    model = ModelTranslator(both_ways("bpe"))
    runs = [BatchedTranslator(lambda: model, "both", max_waiting=99)]
    client = client_of(*runs)
    [served] = client.get("/health").json()["runs"]
    assert served["directions"] == [{"src": "en", "tgt": "de"}, {"src": "de", "tgt": "en"}]
    texts = [SENTENCE, "<to:de> the dog sees milk.", "milk"]
    bodies: list[dict[str, Any]] = [
        {"texts": texts, "beam": beam, "n_best": beam, "alignment": True, **chosen}
        for chosen in ({"tgt": "de"}, {"src": "de", "tgt": "en"}, {"src": "en", "run": "both"})
        for beam in (1, 3)
    ]
    # All at once, while the first is searched.
    with ThreadPoolExecutor(len(bodies)) as others:
        answers = [*others.map(lambda body: client.post("/translate", json=body), bodies)]
    for body, answer in zip(bodies, answers, strict=True):
        assert "<to:" not in answer.text.replace(texts[1], "")
        tgt = body.get("tgt", "de")
        assert (answer.json()["src"], answer.json()["tgt"]) == ("en" if tgt == "de" else "de", tgt)
        alone = model.into(tgt).n_best(texts, strategy=Beam(3) if body["n_best"] > 1 else None, num_best=3)
        for text, result, expected in zip(texts, answer.json()["results"], alone, strict=True):
            assert [each["text"] for each in result["translations"]] == [each.text for each in expected]
            links = [link for each in result["translations"] for link in each["alignment"]]
            assert all(0 <= source < len(text.split()) for source, _ in links)
    assert answers[0].json()["results"] != answers[2].json()["results"]
    for body, problem in (
        ({}, "several directions match: choose one by tgt"),
        ({"tgt": "fr"}, "there is no such run"),
        ({"src": "en", "tgt": "en"}, "there is no such run"),
    ):
        refused = client.post("/translate", json={"text": "x", **body})
        assert refused.status_code == 422
        assert refused.json()["error"] == f"{problem}. The runs are both (en to de, de to en)."
    runs.append(BatchedTranslator(lambda: translator, "tiny", max_waiting=9))
    assert client_of(*runs).post("/translate", json={"text": "x", "tgt": "en"}).json()["run"] == "both"
    refused = client_of(*runs).post("/translate", json={"text": "x", "tgt": "de"})
    assert "several runs match: choose one. The runs are both (en" in refused.json()["error"]


BAD_BODIES = {
    b"": "body",
    b'{"text": "\xff"}': "is not JSON in UTF-8",
    b"[" * 4_000: "deep nesting",
    b'{"beam": ' + b"9" * 4_500 + b"}": "too long a number",
    b"{": "JSON",
    b"[]": "dictionary",
    b'{"text": NaN}': "text",
    b"{}": "give either text",
    b'{"text": "a", "texts": ["a"]}': "give either text",
    b'{"text": 3}': "body.text",
    b'{"texts": []}': "body.texts",
    b'{"texts": ["a", null]}': "body.texts.1",
    json.dumps({"texts": ["a"] * 101}).encode(): "100 items",
    b'{"text": "\\ud800"}': "lone surrogate",
    b'{"text": "a", "\\ud800": 1}': "valid string",
    json.dumps({"text": "a", "b" * 1_000: 1}).encode(): "body.bbb",
    json.dumps({"text": "a" * 201}).encode(): "201 characters",
    json.dumps({"texts": ["a", "a" * 201]}).encode(): "201 characters",
    b'{"text": "a", "beam": 0}': "body.beam",
    b'{"text": "a", "beam": 21}': "20",
    b'{"text": "a", "beam": true}': "body.beam",
    b'{"text": "a", "beam": 2.5}': "body.beam",
    b'{"text": "a", "n_best": 2}': "at most beam",
    json.dumps({"texts": ["a"] * 100, "beam": 20, "n_best": 20}).encode(): "are 2000, but may be at most 500",
    b'{"text": "a", "alignment": "yes"}': "body.alignment",
    b'{"text": "a", "beams": 3}': "body.beams: there is no such key. The keys are text, texts, beam, n_best,",
}


@pytest.mark.parametrize("bad", BAD_BODIES, ids=lambda bad: bad[:30].decode("latin-1"))
def test_a_bad_body_is_refused_in_a_sentence(bad: bytes, client: TestClient) -> None:
    refused = client.post("/translate", content=bad, headers=JSON_TYPE)
    # 400 is for what Python cannot decode at all.
    assert refused.status_code == 422 or "JSON in UTF-8" in refused.json()["error"]
    assert BAD_BODIES[bad] in refused.json()["error"]
    assert len(refused.json()["error"]) < 300


def test_other_types_pages_methods_and_hosts_are_refused(batched: BatchedTranslator) -> None:
    client = client_of(batched, hosts=["localhost", "testserver", "[::1]"])
    # What a form on another site can send from a browser without asking first.
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        refused = client.post("/translate", content=b'{"text": "a"}', headers={"Content-Type": kind})
        assert refused.status_code == 422
        assert "header Content-Type: application/json" in refused.json()["error"]
    # A redirection from "/health/" would lead from a proxy's HTTPS to HTTP.
    unknown = [client.get("/other"), client.get("/health/"), client.get("/docs")]
    for status, refused in (*((404, each) for each in unknown), (405, client.get("/translate"))):
        assert refused.status_code == status
        assert set(refused.json()) == {"error"}
    for host in ("localhost:8000", "LOCALHOST", "[::1]:8000"):
        assert client.get("/health", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "localhost.evil.example", "localhost@evil", ""):
        assert client.get("/health", headers={"Host": host}).status_code == 400


def test_a_late_answer_is_503_and_a_full_queue_429(gate: Gate, translator: ModelTranslator) -> None:
    batched = BatchedTranslator(lambda: translator, "tiny", max_waiting=2)
    with client_of(batched) as client, ThreadPoolExecutor(3) as others:
        waiting = [others.submit(client.post, "/translate", json={"text": "one"})]
        # Only now, or both would be translated together.
        assert gate.entered.wait(60)
        late = client_of(batched, max_seconds=0.05).post("/translate", json={"text": "two"})
        assert (late.status_code, late.headers["Retry-After"]) == (503, "1")
        assert "0.05 seconds" in late.json()["error"]
        for number, text in enumerate(("three", "four"), start=1):
            waiting.append(others.submit(client.post, "/translate", json={"text": text}))
            while client.get("/health").json()["runs"][0]["waiting"] < number:
                time.sleep(0.01)
        full = client.post("/translate", json={"text": "five"})
        assert (full.status_code, full.headers["Retry-After"]) == (429, "1")
        assert full.json()["error"] == "too many texts are waiting."
        gate.opened.set()
        assert [answer.result(60).status_code for answer in waiting] == [200, 200, 200]


def test_the_limits_of_the_command_are_those_of_the_service(
    trained: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    served: list[Any] = []
    monkeypatch.setattr("mt.serving.app.serve", lambda service, listening: served.append(service))
    made = Mock(wraps=BatchedTranslator)
    monkeypatch.setattr("mt.serving.batching.BatchedTranslator", made)
    (tmp_path / "token").write_text("s3cret\n")
    token = ["--token-file", str(tmp_path / "token")]
    limits = ["--timeout", "1", "--max-text", "9", "--max-queue", "2", *token]
    with pytest.raises(SystemExit, match="0"):
        cli(["serve", "--run", str(trained.path), "--port", "0", "--engine", "torch", *limits])
    client = TestClient(served[0].app(), headers={"Authorization": "Bearer s3cret"})
    assert "may have 9" in client.post("/translate", json={"text": "a" * 10}).json()["error"]
    monkeypatch.setattr(served[0].runs[0].translator, "n_best", gate)
    late = client.post("/translate", json={"text": "a"})
    assert (late.status_code, "longer than 1 seconds" in late.json()["error"]) == (503, True)
    assert made.call_args.kwargs == {"max_waiting": 2}
    assert TranslateRequest.model_validate({"texts": ["a"] * 100, "beam": 20, "n_best": 5})


def test_with_a_token_only_its_holders_get_translations(batched: BatchedTranslator) -> None:
    client = client_of(batched, token="s3cret")
    for header in (None, "Bearer wrong", "Basic s3cret", "Bearer é".encode("latin-1")):
        headers: Any = {} if header is None else {"Authorization": header}
        refused = client.post("/translate", json={"text": SENTENCE}, headers=headers)
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    with_token = {"Authorization": "bearer s3cret"}
    assert client.post("/translate", json={"text": SENTENCE}, headers=with_token).status_code == 200
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize("error", [KeyError("apples"), CheckpointError("no library.")])
def test_an_error_of_ours_is_500_and_logged_without_texts(
    error: Exception,
    batched: BatchedTranslator,
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(texts: list[str], **options: object) -> None:
        raise error

    with monkeypatch.context() as patch, caplog.at_level(logging.INFO, "mt"):
        patch.setattr(batched.translator, "n_best", fail)
        broken = client.post("/translate", json={"text": SENTENCE})
    assert (broken.status_code, "see the log" in broken.json()["error"]) == (500, True)
    assert ("KeyError" if isinstance(error, KeyError) else "no library.") in caplog.text
    assert "in fail" in caplog.text
    assert "apples" not in caplog.text
    assert client.post("/translate", json={"text": SENTENCE}).status_code == 200


def test_texts_are_in_the_log_only_if_asked_for(
    batched: BatchedTranslator, caplog: pytest.LogCaptureFixture
) -> None:
    text = "Anna buys \x1b[31m milk."
    with caplog.at_level(logging.DEBUG, "mt"):
        assert client_of(batched).post("/translate", json={"text": text}).status_code == 200
        client_of(batched).post("/translate", json={"text": text, "beam": 0})
    first, second = (record.facts for record in caplog.records if hasattr(record, "facts"))
    assert (first["path"], first["status"], first["run"], first["texts"]) == ("/translate", 200, "tiny", 1)
    assert (first["client"], first["method"]) == ("testclient", "POST")
    assert (first["unknown"], first["copied"]) == (3, 0)
    assert (second["status"], second["reason"].partition(":")[0]) == (422, "body.beam")
    assert "buys" not in caplog.text
    with caplog.at_level(logging.INFO, "mt"):
        client_of(batched, logs_texts=True).post("/translate", json={"text": text})
    assert r"Anna buys \x1b[31m milk. -> Anna kauft" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "mt"):
        client_of(batched).get("/health")
        client_of(batched).get("/metrics")
        client_of(batched).put("/health")
        # What is asked for every few seconds has a line only if it is refused.
        assert [record.facts["status"] for record in caplog.records if hasattr(record, "facts")] == [405]
        client_of(batched, logs_texts=True).post("/translate", json={"text": text})
    assert "Anna buys \\x1b[31m milk. -> " in caplog.text


def test_log_lines_are_for_people_or_for_programs() -> None:
    record = logging.LogRecord("mt", logging.WARNING, "", 0, "a \x1b[31m %s", ("text",), None)
    at, *rest = LogHandler("text").format(record).split(" ")
    assert datetime.fromisoformat(at).tzinfo is not None
    assert " ".join(rest) == "warning: a \\x1b[31m text"
    plain = logging.LogRecord("mt", logging.INFO, "", 0, "all is well", (), None)
    assert LogHandler("text").format(plain).partition(" ")[2] == "all is well"
    line = json.loads(LogHandler("json").format(record))
    assert (line["level"], line["message"]) == ("warning", "a \x1b[31m text")
    record.facts = {"status": 200}
    assert json.loads(LogHandler("json").format(record))["status"] == 200


def test_metrics_add_up_to_the_requests(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    def read() -> dict[str, float]:
        lines = client.get("/metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("mt_"))
        return {name: float(value) for name, value in pairs}

    before = read()
    with caplog.at_level(logging.INFO, "mt"):
        for _ in range(3):
            assert client.post("/translate", json={"texts": [SENTENCE, "milk."]}).status_code == 200
        client.post("/translate", json={"text": SENTENCE, "beam": 0})
        client.get("/health")
    milliseconds = [record.facts["milliseconds"] for record in caplog.records if hasattr(record, "facts")]
    assert all(0 <= each < 60_000 for each in milliseconds)
    added = {name: value - before.get(name, 0) for name, value in read().items()}
    for name, value in (
        ('mt_requests_total{status="200"}', 3), ('mt_requests_total{status="422"}', 1),
        ("mt_request_seconds_count", 4), ('mt_waiting_texts{run="tiny"}', 0),
        ('mt_batch_texts_sum{run="tiny"}', 6), ('mt_batch_texts_count{run="tiny"}', 3),
    ):  # fmt: skip
        assert added[name] == value, name
    assert added["mt_request_seconds_sum"] == pytest.approx(sum(milliseconds) / 1000, abs=1e-3)


def test_pages_of_other_sites_may_use_it_if_they_are_allowed(batched: BatchedTranslator) -> None:
    client = client_of(batched, origins=["https://one.example"], token="secret")
    for site, allowed in (("https://one.example", "https://one.example"), ("https://two.example", None)):
        asked = {"Origin": site, "Access-Control-Request-Method": "POST"}
        answer = client.options(
            "/translate", headers=asked | {"Access-Control-Request-Headers": "authorization"}
        )
        assert answer.headers.get("access-control-allow-origin") == allowed


def test_a_reload_serves_what_is_loaded_then_or_what_was_there(
    translator: ModelTranslator, caplog: pytest.LogCaptureFixture
) -> None:
    newer = copy(translator)
    newer.facts = replace(newer.facts, checkpoint="step_9")
    caplog.set_level(logging.INFO, "mt")
    load = Mock(side_effect=[translator, newer, CheckpointError("it is gone"), KeyError("odd"), translator])
    batched = BatchedTranslator(load, "tiny", max_waiting=9)
    with client_of(batched) as client:
        for checkpoint in (translator.facts.checkpoint, "step_9", "step_9", "step_9"):
            assert client.post("/translate", json={"text": SENTENCE}).status_code == 200
            assert client.get("/health").json()["runs"][0]["checkpoint"] == checkpoint
            batched.reload()
    for reason in ("it is gone", "KeyError: 'odd'"):
        assert f"tiny is served as it was loaded before: {reason}" in caplog.text
    assert [each.getMessage() for each in caplog.records].count("tiny: serving step_9") == 1


async def send(app: Any, messages: AsyncIterator[dict[str, object]]) -> tuple[int, Any]:
    """The status and JSON of the answer to a request that arrives in these messages."""
    sent: list[Any] = []

    async def keep(message: object) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/translate", "query_string": b"", "headers": headers}
    async with asyncio.timeout(60):
        await app({**scope, "client": None}, messages.__anext__, keep)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def body(*pieces: bytes) -> AsyncIterator[dict[str, object]]:
    for piece in pieces:
        yield {"type": "http.request", "body": piece, "more_body": True}
    yield {"type": "http.request", "body": b"", "more_body": False}
    await asyncio.sleep(60)


def test_a_body_whole_or_in_pieces_is_read_up_to_the_largest_size(batched: BatchedTranslator) -> None:
    app = client_of(batched).app
    status, answer = asyncio.run(send(app, body(b'{"text": "Anna ', b"buys milk", b'."}')))
    assert (status, answer["results"][0]["source"]) == (200, "Anna buys milk.")
    for pieces in ([b" " * 1_000_001], [b'{"text": "', *[b" " * 300_000] * 4, b'"}']):
        status, answer = asyncio.run(send(app, body(*pieces)))
        assert (status, answer["error"]) == (413, "the body is too large: send fewer texts at once.")
    # It may be as long as the longest text, however JSON escapes it.
    escaped = json.dumps({"text": "milk" + "\u2003" * 200_000}).encode()
    status, _ = asyncio.run(send(client_of(batched, max_characters=200_004).app, body(escaped)))
    assert status == 200


def test_a_request_whose_client_has_left_is_given_up(gate: Gate, batched: BatchedTranslator) -> None:
    async def leave() -> AsyncIterator[dict[str, object]]:
        async for message in body(b'{"text": "one"}'):
            yield message
            if not message["more_body"]:
                await asyncio.to_thread(gate.entered.wait, 60)
                yield {"type": "http.disconnect"}

    status, answer = asyncio.run(send(client_of(batched).app, leave()))
    assert (status, answer["error"]) == (499, "the client did not wait for the answer.")
