"""The validation sentences that a run keeps: its models are converted and verified without its corpus."""

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Annotated

from pydantic import StringConstraints, TypeAdapter

from mt.data.tokenizers.tokenizer import Tokenizer
from mt.files import read_bytes, write_atomically
from mt.run_directory import RunDirectory

_MOST, _LONGEST = 500, 2000
"""How many pairs are kept, and of how many characters a side at most."""
_MAX_BYTES = 16_000_000
_Text = Annotated[str, StringConstraints(max_length=_LONGEST)]
_PAIRS = TypeAdapter(list[tuple[_Text, _Text]])


def keep_pairs(
    run: RunDirectory, pairs: Iterable[tuple[str, str]], tokenizers: Sequence[Tokenizer], max_length: int
) -> None:
    """Keep the first pairs that have text on both sides, as much as a model of ``max_length`` reads."""

    def fits(text: str, tokenizer: Tokenizer) -> bool:
        return bool(text.strip()) and len(text) <= _LONGEST and len(tokenizer.encode(text)) < max_length

    fitting = (pair for pair in pairs if all(map(fits, pair, tokenizers)))
    lines = ",\n".join(json.dumps(pair, ensure_ascii=False) for pair in islice(fitting, _MOST))
    write_atomically(run.verification_file, f"[\n{lines}\n]\n")


def verification_pairs(run: RunDirectory) -> list[tuple[str, str]]:
    """The pairs that the run keeps; none if they are missing or damaged."""
    try:
        return _PAIRS.validate_json(read_bytes(run.verification_file, max_bytes=_MAX_BYTES))[:_MOST]
    except (OSError, ValueError):
        return []
