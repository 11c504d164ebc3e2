"""External tokenizers: a tokenizer.json on disk or on the Hub, renumbered to have our special tokens."""

import json
import logging
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download

from mt.config.data import TokenizerConfig
from mt.data.sources.find import may_be_hub_id
from mt.data.sources.hub import error_text, hub
from mt.data.sources.source import named_path
from mt.data.tokenizers.tokenizer import Tokenizer, read_tokenizer_file
from mt.errors import DataError
from mt.special_tokens import SPECIAL_TOKENS, UNK, UNK_ID

LOG = logging.getLogger(__name__)

FILE_NAME = "tokenizer.json"


def external_tokenizer(config: TokenizerConfig, *, limit_seconds: float) -> Tokenizer:
    """Read the tokenizer that ``config.path`` names; a file on disk is preferred to the Hub."""
    path = named_path(str(config.path))
    path = path / FILE_NAME if path.is_dir() else path
    if not path.exists() and path.suffix != ".json" and may_be_hub_id(str(config.path)):
        with hub(f"tokenizer.path: {config.path}", limit_seconds):
            path = Path(hf_hub_download(str(config.path), FILE_NAME))
        LOG.info("tokenizer: %s, at commit %s", config.path, path.parent.name)
    if not path.exists():
        kinds = f"a {FILE_NAME}, a folder with one, or a Hub id such as google-t5/t5-small"
        raise DataError(f"tokenizer.path: there is no file {str(path)!r}. It may be {kinds}.")
    try:
        content = json.loads(read_tokenizer_file(path))
        _make_ours(content, lowercase=config.lowercase)
        return Tokenizer.from_json(json.dumps(content).encode())
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        why = f"{type(error).__name__}: {error_text(error)}"
        raise DataError(
            f"tokenizer.path: {path} is not a usable tokenizer of the tokenizers library ({why})."
        ) from None


def _make_ours(content: dict[str, Any], *, lowercase: bool) -> None:
    """Change a tokenizer.json in place: its tokens for unknown text and the like give way to ours."""
    model = content["model"]
    is_scored = isinstance(model["vocab"], list)
    numbers = dict(model["vocab"])
    names = [*numbers] if is_scored else sorted(numbers, key=numbers.__getitem__)
    unknown = model.get("unk_token") if model.get("unk_id") is None else model["vocab"][model["unk_id"]][0]
    added = sorted(content.get("added_tokens") or [], key=lambda token: token["id"])
    left_out = {*SPECIAL_TOKENS, unknown, *(token["content"] for token in added if token["special"])}
    names = [*SPECIAL_TOKENS, *(name for name in names if name not in left_out)]
    ids = {name: i for i, name in enumerate(names)}
    if is_scored:
        numbers |= dict.fromkeys(SPECIAL_TOKENS, min(numbers.values()))
        model["vocab"] = [[name, numbers[name]] for name in names]
        model["unk_id"] = UNK_ID
    else:
        model["vocab"] = dict(ids)
        # Without one, the library would drop unknown text.
        model["unk_token"] = UNK
    model.pop("dropout", None)
    kept = [token for token in added if not token["special"] and token["content"] not in left_out]
    content["added_tokens"] = [token | {"id": ids.setdefault(token["content"], len(ids))} for token in kept]
    content["truncation"] = content["padding"] = content["post_processor"] = None
    if lowercase:
        steps = [{"type": "Lowercase"}, content.get("normalizer")]
        content["normalizer"] = {"type": "Sequence", "normalizers": [*filter(None, steps)]}
