"""JSON with a checksum of itself: that of the text with zeros in its place. It notices accidents."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_NO_SEAL = "0" * 64


def sealed(content: Mapping[str, Any]) -> str:
    """The text of these values with their checksum."""
    text = json.dumps({"seal": _NO_SEAL, **content}, indent=2) + "\n"
    return text.replace(_NO_SEAL, hashlib.sha256(text.encode()).hexdigest(), 1)


def unsealed(text: str) -> dict[str, Any]:
    """The values of such a text; raises ValueError if it is not what was written."""
    try:
        content: dict[str, Any] = json.loads(text)
        seal = content.pop("seal")
        if hashlib.sha256(text.replace(seal, _NO_SEAL, 1).encode()).hexdigest() == seal:
            return content
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        pass
    raise ValueError("its checksum differs")
