"""The OpenAPI 3.1 description of the service; tests compare it with what the service does."""

from collections.abc import Iterable, Sequence
from typing import Any

import mt
from mt.serving.request import Limits, ServedRun

Json = dict[str, Any]

# Status codes of `POST /translate` besides 200, and when they are sent.
REFUSALS = {
    400: "The request is not HTTP",
    401: "The bearer token is missing or wrong",
    408: "The request did not arrive in time",
    413: "The body is too large",
    415: "The body is not application/json",
    421: "The Host header is not a name of the service",
    422: "The body is not JSON, requests something that is not available, or has a text that is too long",
    429: "Too many texts are waiting",
    500: "Internal error",
    503: "The answer took too long, there are too many connections, or the service is stopping",
}
# With a Retry-After header.
TRY_AGAIN = (429, 503)
_RETRY_AFTER = {
    "description": "Seconds after which to try again.",
    "schema": {"type": "integer", "minimum": 1},
}

_TRANSLATION: Json = {
    "text": {"type": "string"},
    "score": {"type": "number", "description": "The score that ranks the translations."},
    "log_prob": {"type": "number", "description": "Natural log-probability."},
    "alignment": {
        "type": ["array", "null"],
        "items": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
        "description": "Pairs of a source and a target word, counted from 0; words are separated by "
        "spaces. null for a long text that was translated in parts.",
    },
}


def description(limits: Limits, runs: Sequence[ServedRun]) -> Json:
    """The OpenAPI document of a service with these runs and limits."""
    refusals = {
        str(status): {
            "description": when + ".",
            "content": _json({"$ref": "#/components/schemas/Error"}),
            **({"headers": {"Retry-After": _RETRY_AFTER}} if status in TRY_AGAIN else {}),
        }
        for status, when in REFUSALS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "mt serve", "version": mt.__version__},
        "paths": {
            "/translate": {
                "post": {
                    "operationId": "translate",
                    "summary": "Translate one or several texts.",
                    "security": [{}, {"bearer": []}],
                    "requestBody": {
                        "required": True,
                        "content": _json({"$ref": "#/components/schemas/Request"}),
                    },
                    "responses": {
                        "200": {
                            "description": "The translations of each text, in order.",
                            "content": _json({"$ref": "#/components/schemas/Response"}),
                        },
                        **refusals,
                    },
                }
            },
            "/health": {
                "get": {
                    "operationId": "health",
                    "summary": "Whether the service answers, and which runs it serves.",
                    "responses": {
                        "200": {
                            "description": "The service answers.",
                            "content": _json({"$ref": "#/components/schemas/Health"}),
                        },
                        "421": refusals["421"],
                    },
                }
            },
        },
        "components": {
            "schemas": _schemas(limits, runs),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _object(properties: Json, *, optional: tuple[str, ...] = ()) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def _schemas(limits: Limits, runs: Sequence[ServedRun]) -> Json:
    return {
        "Request": _request(limits, runs),
        "Response": _object(
            {
                "run": {"type": "string"},
                "src": {"type": "string"},
                "tgt": {"type": "string"},
                "results": {"type": "array", "items": {"$ref": "#/components/schemas/Result"}},
            }
        ),
        "Result": _object(
            {
                "source": {"type": "string", "description": "The text as it was read."},
                "translations": {
                    "type": "array",
                    "items": {"$ref": "#/components/schemas/Translation"},
                    "description": "The best first.",
                },
            }
        ),
        "Translation": _object(_TRANSLATION, optional=("alignment",)),
        "Health": _object(
            {
                "status": {"const": "ok"},
                "version": {"type": "string"},
                "runs": {"type": "array", "items": {"$ref": "#/components/schemas/Run"}},
            }
        ),
        "Run": _object(
            {
                "run": {"type": "string"},
                "src": {"type": "string"},
                "tgt": {"type": "string"},
                "checkpoint": {"type": "string"},
                "engine": {"type": "string", "description": "What translates: ctranslate2 or torch."},
                "precision": {"type": "string"},
                "device": {"type": "string"},
                "why": {"type": "string", "description": "Why this engine was chosen."},
                "alignment": {"type": "boolean", "description": "Whether it can align words."},
                "waiting": {"type": "integer", "description": "Texts that are waiting to be translated."},
            }
        ),
        "Error": _object({"error": {"type": "string", "description": "What is wrong, in a sentence."}}),
    }


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _request(limits: Limits, runs: Sequence[ServedRun]) -> Json:
    text = {"type": "string", "maxLength": limits.max_characters}
    number = {"type": "integer", "minimum": 1, "maximum": limits.max_beam, "default": 1}
    asked: Json = {
        "text": {**text, "description": "One text. Give either this or texts."},
        "texts": {"type": "array", "items": text, "minItems": 1, "maxItems": limits.max_texts},
        "beam": {**number, "description": "Beam size; 1 is greedy search."},
        "n_best": {**number, "description": "Maximum number of translations of a text; at most beam."},
        "alignment": {
            "enum": [False, True] if any(run.translator.can_align for run in runs) else [False],
            "default": False,
            "description": "Whether to align words.",
        },
        "run": {"enum": [run.name for run in runs], "description": "The run; needed if several are served."},
        "src": {
            "enum": _unique(run.src for run in runs),
            "description": "The source language, to choose a run by.",
        },
        "tgt": {
            "enum": _unique(run.tgt for run in runs),
            "description": "The target language, to choose a run by.",
        },
    }
    one_of = [{"required": ["text"]}, {"required": ["texts"]}]
    return {**_object(asked, optional=tuple(asked)), "oneOf": one_of}
