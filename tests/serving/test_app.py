"""The service in this process: answers, refusals, and the description compared with both."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from mt.errors import CheckpointError
from mt.inference.model_translator import ModelTranslator
from mt.search.strategy import Beam
from mt.serving.app import Service
from mt.serving.batching import BatchedTranslator
from mt.serving.openapi import REFUSALS, TRY_AGAIN
from mt.serving.request import Limits, ServedRun

if TYPE_CHECKING:
    from tests.serving.conftest import Gate

SENTENCE = "Anna buys two red apples today."
LIMITS = Limits(max_characters=200, max_texts=10, max_beam=8, max_seconds=60)


def client_of(*runs: ServedRun, limits: Limits = LIMITS, **options: Any) -> TestClient:
    service = Service(runs, limits, **options)
    return TestClient(service.app(), raise_server_exceptions=False)


@pytest.fixture
def run(batched: BatchedTranslator) -> ServedRun:
    return ServedRun("tiny", "en", "de", "best", batched)


@pytest.fixture
def client(run: ServedRun) -> TestClient:
    return client_of(run)


# ---- answers ----


def test_one_text_is_translated_as_the_translator_does(
    client: TestClient, reference: ModelTranslator
) -> None:
    answer = client.post("/translate", json={"text": SENTENCE})
    assert answer.status_code == 200
    [alone] = reference.n_best([SENTENCE])
    [result] = answer.json()["results"]
    [found] = result["translations"]
    assert (result["source"], found["text"]) == (SENTENCE, alone[0].text)
    assert found["score"] == pytest.approx(alone[0].score, abs=1e-4)
    assert set(found) == {"text", "score", "log_prob"}


def test_several_texts_with_a_beam_and_alternatives_and_alignment(
    client: TestClient, reference: ModelTranslator
) -> None:
    texts = [SENTENCE, "", "the dog sees\n  a house."]
    asked = {"texts": texts, "beam": 4, "n_best": 3, "alignment": True}
    results = client.post("/translate", json=asked).json()["results"]
    read = [" ".join(text.split()) for text in texts]
    assert [each["source"] for each in results] == read
    alone = [reference.n_best([text], strategy=Beam(4), num_best=3)[0] for text in read]
    assert [[each["text"] for each in result["translations"]] for result in results] == [
        [each.text for each in best_first] for best_first in alone
    ]
    for result in results:
        for each in result["translations"]:
            words = len(result["source"].split()), len(each["text"].split())
            assert all(0 <= s < words[0] and 0 <= t < words[1] for s, t in each["alignment"])
    assert results[0]["translations"][0]["alignment"]


def test_a_run_is_chosen_by_its_name_or_its_languages(batched: BatchedTranslator, run: ServedRun) -> None:
    other = ServedRun("other", "de", "en", "best", batched)
    client = client_of(run, other)
    for chosen, name in (({"run": "other"}, "other"), ({"src": "en"}, "tiny"), ({"tgt": "en"}, "other")):
        assert client.post("/translate", json={"text": "x", **chosen}).json()["run"] == name
    for chosen in ({}, {"run": "third"}, {"run": "tiny", "src": "de"}):
        refused = client.post("/translate", json={"text": "x", **chosen})
        assert refused.status_code == 422
        assert "tiny (en to de), other (de to en)" in refused.json()["error"]


def test_of_runs_with_the_same_languages_only_a_name_is_proposed(
    batched: BatchedTranslator, run: ServedRun
) -> None:
    same, other = (
        ServedRun(name, "en", tgt, "best", batched) for name, tgt in (("same", "de"), ("fr", "fr"))
    )
    for second, by_languages in ((same, False), (other, True)):
        refused = client_of(run, second).post("/translate", json={"text": "x"}).json()["error"]
        assert "choose one by run" in refused
        assert ("src and tgt" in refused) is by_languages


def test_health_names_what_is_served_and_what_waits(client: TestClient, gate: "Gate", run: ServedRun) -> None:
    first = run.translator.submit(["one"], _greedy())
    assert gate.entered.wait(60)
    second = run.translator.submit(["two"] * 3, _greedy())
    [served] = client.get("/health").json()["runs"]
    assert served == {
        "run": "tiny", "src": "en", "tgt": "de", "checkpoint": "best", "alignment": True, "waiting": 3,
        "engine": "torch", "precision": "float32", "device": "cpu", "why": "",
    }  # fmt: skip
    gate.opened.set()
    assert [first.result(60), second.result(60)]
    assert client.get("/health").json()["runs"][0]["waiting"] == 0


def _greedy() -> Any:
    from mt.serving.batching import SearchSettings

    return SearchSettings()


# ---- refusals ----

BAD_BODIES = {
    b"": "not JSON",
    b"{": "not JSON",
    b"[]": "must be a JSON object",
    b"null": "must be a JSON object",
    b'{"text": NaN}': "not JSON",
    b'{"text": "\xff"}': "not UTF-8: byte 10",
    b"[" * 4_000: "not JSON",
    b'{"beam": ' + b"9" * 4_500 + b"}": "not JSON",
    b"{}": "give either text",
    b'{"text": "a", "texts": ["a"]}': "give either text",
    b'{"text": 3}': "text must be a string",
    b'{"texts": "a"}': "texts must be a list",
    b'{"texts": []}': "0 texts",
    b'{"texts": ["a", null]}': "text 2 must be a string",
    json.dumps({"texts": ["a"] * 11}).encode(): "11 texts",
    b'{"text": "\\ud800"}': "half of a surrogate pair",
    json.dumps({"text": "a" * 201}).encode(): "201 characters",
    b'{"text": "a", "beam": 0}': "beam is 0",
    b'{"text": "a", "beam": true}': "beam must be an integer",
    b'{"text": "a", "beam": 2.5}': "beam must be an integer",
    b'{"text": "a", "beam": ' + b"9" * 4_000 + b"}": "from 1 to 8",
    b'{"text": "a", "n_best": 2}': "n_best is 2: it must be from 1 to beam, which is 1",
    b'{"text": "a", "alignment": "yes"}': "alignment must be true or false",
    b'{"text": "a", "beams": 3}': "unknown key 'beams'",
    json.dumps({"text": "milk " * 40}).encode(): "has a sentence of 41 tokens",
    json.dumps({"text": "milk. " * 20, "beam": 2, "n_best": 2}).encode(): "n-best",
}


@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: body[:30].decode("latin-1"))
def test_a_bad_body_is_refused_in_a_sentence(body: bytes, client: TestClient) -> None:
    refused = client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    assert refused.status_code == 422
    assert BAD_BODIES[body] in refused.json()["error"]
    assert len(refused.json()["error"]) < 300


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
# Mostly what is asked for, and sometimes something else in its place.
ASKED = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(max_size=60) | JSON,
        "texts": st.lists(st.text(max_size=60), max_size=3) | JSON,
        "beam": st.integers(1, 4) | JSON,
        "n_best": st.just(1) | JSON,
        "alignment": st.booleans() | JSON,
        "run": st.just("tiny") | JSON,
        "other": JSON,
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=ASKED | JSON)
def test_whatever_json_is_sent_the_answer_is_a_translation_or_a_refusal(
    asked: Any, client: TestClient
) -> None:
    answer = client.post(
        "/translate", content=json.dumps(asked), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (200, 422)
    assert set(answer.json()) == (
        {"error"} if answer.status_code == 422 else {"run", "src", "tgt", "results"}
    )


def test_other_types_other_pages_and_other_methods_are_refused(client: TestClient) -> None:
    # What a form on another site can send from a browser without asking first.
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        refused = client.post("/translate", content=b'{"text": "a"}', headers={"Content-Type": kind})
        assert refused.status_code == 415
    # A redirection from "/health/" would lead from a proxy's HTTPS to HTTP.
    unknown = [client.get("/other"), client.get("/health/"), client.post("/translate/", json={"text": "a"})]
    for status, refused in (*((404, each) for each in unknown), (405, client.get("/translate"))):
        assert refused.status_code == status
        assert set(refused.json()) == {"error"}


HOSTS = {"localhost", "127.0.0.1", "[::1]"}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:80", "[::1]:8000", "[::1]"])
def test_it_answers_by_its_own_names_with_any_port(host: str, run: ServedRun) -> None:
    client = client_of(run, hosts=HOSTS)
    assert client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost@evil", ""]
)
@pytest.mark.parametrize("path", ["/", "/health", "/openapi.json", "/translate"])
def test_a_name_that_another_site_lets_lead_here_is_refused(host: str, path: str, run: ServedRun) -> None:
    client = client_of(run, hosts=HOSTS)
    method = "POST" if path == "/translate" else "GET"
    refused = client.request(method, path, json={"text": SENTENCE}, headers={"Host": host})
    assert refused.status_code == 421
    assert "127.0.0.1" in refused.json()["error"]


def test_a_large_body_is_refused_whether_or_not_it_says_its_size(client: TestClient) -> None:
    json_type = {"Content-Type": "application/json"}
    parts = iter([b" " * 10_000] * 1_000)
    for content in (b" " * 1_000_001, parts):
        refused = client.post("/translate", content=content, headers=json_type)
        assert refused.status_code == 413
        assert "1,000,000 bytes" in refused.json()["error"]


def test_the_body_may_be_as_long_as_the_longest_text_however_json_escapes_it(run: ServedRun) -> None:
    most = 100_000
    client = client_of(run, limits=Limits(max_characters=most))
    for length, reason in ((most, "tokens"), (most + 1, "characters")):
        body = json.dumps({"text": "😀" * length})
        assert len(body) > 1_000_000
        answer = client.post("/translate", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422
        assert reason in answer.json()["error"]


def test_a_full_queue_is_429_and_a_late_answer_503_and_both_say_when_to_try_again(
    gate: "Gate", run: ServedRun
) -> None:
    running = run.translator.submit(["one"], _greedy())
    assert gate.entered.wait(60)
    hurried = client_of(run, limits=Limits(max_seconds=0.05))
    late = hurried.post("/translate", json={"text": "two"})
    assert late.status_code == 503
    assert int(late.headers["Retry-After"]) >= 1
    assert "0.05 seconds" in late.json()["error"]
    # Nobody waits for it any more.
    assert run.translator.num_waiting == 0
    waiting = run.translator.submit(["three"] * 20, _greedy())
    full = hurried.post("/translate", json={"text": "four"})
    assert full.status_code == 429
    assert int(full.headers["Retry-After"]) >= 1
    gate.opened.set()
    assert [running.result(60), waiting.result(60)]
    assert ["two"] not in [list(texts) for texts in gate.searched]


def test_what_comes_while_it_stops_is_503(translator: ModelTranslator) -> None:
    with BatchedTranslator(translator, max_waiting=5) as batched:
        pass
    refused = client_of(ServedRun("tiny", "en", "de", "best", batched)).post("/translate", json={"text": "a"})
    assert refused.status_code == 503
    assert "stopping" in refused.json()["error"]


def test_without_the_token_nothing_is_translated(run: ServedRun) -> None:
    client = client_of(run, token="s3cret")
    for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}, {
        "Authorization": b"Bearer \xff"
    }):  # fmt: skip
        refused = client.post("/translate", json={"text": SENTENCE}, headers=header)  # type: ignore[arg-type]
        assert refused.status_code == 401
        assert refused.headers["WWW-Authenticate"] == "Bearer"
    with_token = {"Authorization": "bearer s3cret"}
    assert client.post("/translate", json={"text": SENTENCE}, headers=with_token).status_code == 200
    assert client.get("/health").status_code == 200


def test_alignment_without_the_plain_model_is_refused(translator: ModelTranslator) -> None:
    with BatchedTranslator(translator, max_waiting=5) as batched:
        client = client_of(ServedRun("tiny", "en", "de", "best", batched))
        refused = client.post("/translate", json={"text": "a", "alignment": True})
        assert refused.status_code == 422
        assert "float32" in refused.json()["error"]
        whole = client.get("/openapi.json").json()
        assert not conforms(
            {"text": "a", "alignment": True}, whole["components"]["schemas"]["Request"], whole
        )
        assert client.get("/health").json()["runs"][0]["alignment"] is False


def test_an_error_of_ours_is_500_and_logged_without_texts(
    translator: ModelTranslator,
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(texts: list[str], **options: object) -> None:
        raise KeyError(texts[0])

    with monkeypatch.context() as patch, caplog.at_level(logging.INFO, "mt"):
        patch.setattr(translator, "n_best", fail)
        broken = client.post("/translate", json={"text": SENTENCE})
    assert broken.status_code == 500
    assert set(broken.json()) == {"error"}
    assert "KeyError" in caplog.text
    assert "in fail" in caplog.text
    assert "apples" not in caplog.text
    assert client.post("/translate", json={"text": SENTENCE}).status_code == 200


def test_an_error_of_the_run_or_the_device_is_not_that_of_the_client(
    translator: ModelTranslator,
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(texts: list[str], **options: object) -> None:
        raise CheckpointError("CTranslate2 cannot translate with this folder: no library.")

    monkeypatch.setattr(translator, "n_best", fail)
    with caplog.at_level(logging.INFO, "mt"):
        broken = client.post("/translate", json={"text": SENTENCE})
    assert broken.status_code == 500
    assert "see the log" in broken.json()["error"]
    assert "CTranslate2 cannot translate with this folder: no library." in caplog.text


def test_texts_are_in_the_log_only_if_asked_for(run: ServedRun, caplog: pytest.LogCaptureFixture) -> None:
    text = "Anna buys \x1b[31m milk."
    with caplog.at_level(logging.DEBUG, "mt"):
        assert client_of(run).post("/translate", json={"text": text}).status_code == 200
        client_of(run).post("/translate", json={"text": text, "beam": 0})
        client_of(run).get("/Anna buys milk.")
    assert "1 text in" in caplog.text
    assert "buys" not in caplog.text
    with caplog.at_level(logging.DEBUG, "mt"):
        client_of(run, logs_texts=True).post("/translate", json={"text": text})
    assert "Anna buys \\x1b[31m milk. -> " in caplog.text


# ---- the description ----


def conforms(value: Any, schema: dict[str, Any], whole: dict[str, Any]) -> bool:
    """Whether a value is what a JSON Schema says, as far as ours use that language."""
    if "$ref" in schema:
        return conforms(value, whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]], whole)
    if "const" in schema:
        return bool(value == schema["const"])
    if "enum" in schema:
        # 1 is True to Python, and not to JSON.
        return any(value == each and type(value) is type(each) for each in schema["enum"])
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if value is None:
        return "null" in types
    if isinstance(value, bool):
        return "boolean" in types
    if isinstance(value, str):
        return "string" in types and len(value) <= schema.get("maxLength", len(value))
    if isinstance(value, int | float):
        is_number = "number" in types or ("integer" in types and isinstance(value, int))
        return is_number and schema.get("minimum", value) <= value <= schema.get("maximum", value)
    if isinstance(value, list):
        is_long = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        return "array" in types and is_long and all(conforms(each, schema["items"], whole) for each in value)
    known = schema["properties"]
    return (
        "object" in types
        and set(schema["required"]) <= set(value) <= set(known)
        and sum(set(each["required"]) <= set(value) for each in schema.get("oneOf", [{"required": []}])) == 1
        and all(conforms(each, known[key], whole) for key, each in value.items())
    )


REQUESTS: list[dict[str, Any]] = [
    {"text": SENTENCE},
    {"texts": [SENTENCE, ""], "beam": 3, "n_best": 2, "alignment": True},
    {"text": SENTENCE, "run": "tiny", "src": "en", "tgt": "de"},
    {"texts": ["milk. " * 20], "alignment": True},
    {},
    {"text": "a", "texts": ["b"]},
    {"text": 1},
    {"texts": []},
    {"texts": ["a"] * 11},
    {"text": "a" * 201},
    {"text": "a", "beam": 9},
    {"text": "a", "beam": "3"},
    {"text": "a", "n_best": 0},
    {"text": "a", "other": 1},
    {"text": "a", "run": ""},
    {"text": "a", "src": "de"},
    {"text": "a", "tgt": "en"},
    {"text": "a", "alignment": 1},
]  # fmt: skip


@pytest.mark.parametrize("asked", REQUESTS, ids=lambda asked: json.dumps(asked)[:40])
def test_the_description_says_which_requests_are_answered_and_how(
    asked: dict[str, Any], client: TestClient
) -> None:
    whole = client.get("/openapi.json").json()
    operation = whole["paths"]["/translate"]["post"]
    answer = client.post("/translate", json=asked)
    is_valid = conforms(asked, operation["requestBody"]["content"]["application/json"]["schema"], whole)
    assert answer.status_code == (200 if is_valid else 422)
    described = operation["responses"][str(answer.status_code)]["content"]["application/json"]["schema"]
    assert conforms(answer.json(), described, whole)


def test_the_description_has_every_route_and_every_status_code(client: TestClient) -> None:
    whole = client.get("/openapi.json").json()
    assert whole["openapi"].startswith("3.1")
    health = whole["paths"]["/health"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert conforms(client.get("/health").json(), health, whole)
    # The page and the description itself are for people.
    app = client.app
    assert {route.path for route in app.routes} - {"/", "/openapi.json"} == set(whole["paths"])  # type: ignore[attr-defined]
    sources = [Path(__file__).parents[2] / "mt" / "serving" / name for name in ("app.py", "server.py")]
    raised = {
        int(status)
        for source in sources
        for status in re.findall(r'(?:HTTPException|_error|_refuse)\(\s*"?(\d{3})', source.read_text())
    }
    assert raised == set(REFUSALS)
    for status in TRY_AGAIN:
        assert "Retry-After" in whole["paths"]["/translate"]["post"]["responses"][str(status)]["headers"]


def test_the_examples_of_the_documentation_are_answered(client: TestClient) -> None:
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    bodies: Iterator[str] = iter(re.findall(r"-d '(\{.*?\})'", page, re.DOTALL))
    answers = [client.post("/translate", json=json.loads(body)) for body in bodies]
    assert len(answers) >= 2
    assert {answer.status_code for answer in answers} == {200}
