"""Reads and checks the JSON of a client's request."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from mt.display import counted, visible
from mt.errors import DataError
from mt.search.strategy import Beam
from mt.serving.batching import BatchedTranslator, SearchSettings


@dataclass(frozen=True)
class Limits:
    """The limits of one request, and how long it may take."""

    max_characters: int = 5_000
    """The most characters in a text."""
    max_texts: int = 100
    """The most texts in a request."""
    max_beam: int = 20
    """The widest beam."""
    max_seconds: float = 30.0
    """How long a client waits for its answer at most, and the server for a request."""

    @property
    def max_body_bytes(self) -> int:
        """The largest body: room for the longest text if each character is two JSON escapes of six bytes."""
        return max(1_000_000, 12 * self.max_characters + 1_000)


@dataclass(frozen=True)
class ServedRun:
    """A run that is served, and its languages."""

    name: str
    src: str
    tgt: str
    checkpoint: str
    translator: BatchedTranslator


@dataclass(frozen=True)
class TranslateRequest:
    """A checked request."""

    texts: Sequence[str]
    """With single spaces for all white space, including line breaks, as `mt translate` reads a sentence."""
    run: ServedRun
    settings: SearchSettings
    aligned: bool


# Each key, its type, and the name of that type.
_KEYS: dict[str, tuple[type, str]] = {
    "text": (str, "a string"),
    "texts": (list, "a list of strings"),
    "beam": (int, "an integer"),
    "n_best": (int, "an integer"),
    "alignment": (bool, "true or false"),
    "run": (str, "a string"),
    "src": (str, "a string"),
    "tgt": (str, "a string"),
}


def read_request(body: bytes, runs: Sequence[ServedRun], limits: Limits) -> TranslateRequest:
    """Read a request to translate.

    Args:
        body: The body that the client sent.
        runs: The runs to choose from.
        limits: The limits of a request.
    """
    asked = _object(body)
    for key, value in asked.items():
        _refuse_other_type(key, value)
    texts = _texts(asked, limits)
    beam, num_best = asked.get("beam", 1), asked.get("n_best", 1)
    if not 1 <= beam <= limits.max_beam:
        raise DataError(f"beam is {_short(beam)}: it must be from 1 to {limits.max_beam}.")
    if not 1 <= num_best <= beam:
        raise DataError(f"n_best is {_short(num_best)}: it must be from 1 to beam, which is {beam}.")
    aligned = asked.get("alignment", False)
    run = _choose_run(asked, runs)
    if aligned and not run.translator.can_align:
        raise DataError(
            f"{run.name} has no alignment: by torch, only runs that are served in float32 do. Leave it out."
        )
    return TranslateRequest(
        texts, run, SearchSettings(Beam(beam) if beam > 1 else None, num_best), aligned=aligned
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise DataError(f"the body is not UTF-8: byte {error.start} is wrong.") from error
    except (ValueError, RecursionError) as error:
        raise DataError('the body is not JSON. Send an object such as {"text": "a sentence"}.') from error
    if not isinstance(asked, dict):
        raise DataError('the body must be a JSON object, such as {"text": "a sentence"}.')
    return asked


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse_other_type(key: str, value: object) -> None:
    if key not in _KEYS:
        raise DataError(f"unknown key {_short(key)}. The keys are {', '.join(_KEYS)}.")
    wanted, name = _KEYS[key]
    # A bool is an int in Python, but not in JSON.
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise DataError(f"{key} must be {name}.")


def _texts(asked: dict[str, Any], limits: Limits) -> list[str]:
    if ("text" in asked) == ("texts" in asked):
        raise DataError("give either text, one string, or texts, a list of strings.")
    texts = [asked["text"]] if "text" in asked else asked["texts"]
    if not 1 <= len(texts) <= limits.max_texts:
        raise DataError(
            f"there are {counted(len(texts), 'text')}: a request may have from 1 to {limits.max_texts}."
        )
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise DataError(f"text {number} must be a string.")
        if len(text) > limits.max_characters:
            raise DataError(
                f"text {number} has {len(text):,} characters, but a text may have {limits.max_characters:,}. "
                "Split it."
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"text {number} is not Unicode: character {error.start + 1} is half of a surrogate pair."
            ) from error
    return [" ".join(text.split()) for text in texts]


def _choose_run(asked: dict[str, Any], runs: Sequence[ServedRun]) -> ServedRun:
    found = [
        run
        for run in runs
        if asked.get("run", run.name) == run.name
        and asked.get("src", run.src) == run.src
        and asked.get("tgt", run.tgt) == run.tgt
    ]
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"{run.name} ({run.src} to {run.tgt})" for run in runs)
    by_languages = ", or by src and tgt" if len({(run.src, run.tgt) for run in found}) == len(found) else ""
    problem = f"several runs match: choose one by run{by_languages}" if found else "there is no such run"
    raise DataError(f"{problem}. The runs are {there}.")


def _short(value: object) -> str:
    return visible(repr(value)[:40])
