"""SentencePiece models (Kudo and Richardson 2018) as tokenizers whose ids are those of a given vocabulary."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from mt.data.tokenizers.tokenizer import MAX_BYTES, Tokenizer
from mt.errors import DataError
from mt.files import read_bytes
from mt.special_tokens import SPECIAL_TOKENS, UNK_ID

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
_LANGUAGE_CODE = re.compile(">>.+<<")
# By how much an unknown character scores less than the rarest piece.
_UNKNOWN_PENALTY = 10.0
# Before an entry that the SentencePiece model does not have, so that no text is split into it.
_NEVER_WRITTEN = "\ue000"


def read_sentencepiece(path: Path, vocabulary: Sequence[str]) -> Tokenizer:
    """The unigram model in the file ``path``, by the ids of a vocabulary that begins with our special tokens.

    Entries that the model does not have are decoded, but not the result of encoding, unless none of their
    characters is in any piece, or they are a language code such as ``>>fr<<``.
    """
    model = _parse(path)
    scores = {piece.piece: piece.score for piece in model.pieces if piece.type == piece.NORMAL}
    of_unknown = min(scores.values()) - _UNKNOWN_PENALTY
    characters = set().union(*scores)
    codes = [entry for entry in vocabulary if _LANGUAGE_CODE.fullmatch(entry)]
    known = {*SPECIAL_TOKENS, *codes, *scores}
    entries = []
    for entry in vocabulary:
        is_written = entry in known or characters.isdisjoint(entry)
        entries.append((entry if is_written else _NEVER_WRITTEN + entry, scores.get(entry, of_unknown)))
    library = tokenizers.Tokenizer(models.Unigram(entries, unk_id=UNK_ID, byte_fallback=False))
    library.add_tokens([AddedToken(code, normalized=False) for code in codes])
    rules = model.normalizer_spec
    steps: list[Any] = [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    if rules.precompiled_charsmap:
        steps.insert(0, _precompiled(rules.precompiled_charsmap))
    library.normalizer = normalizers.Sequence(steps)
    library.pre_tokenizer = pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme="always", split=False)
    unspaced = decoders.Metaspace(replacement=_SPACE, prepend_scheme="always")
    library.decoder = decoders.Sequence([decoders.Replace(_NEVER_WRITTEN, ""), unspaced])
    return Tokenizer.from_json(library.to_str().encode())


def _precompiled(rules: bytes) -> normalizers.Precompiled:
    """The normalizer with these rules, which are damaged if the library panics for any character."""
    # It would reserve whatever the file says.
    if int.from_bytes(rules[:4], "little") > len(rules) - 4:
        raise ValueError("its rules of normalisation are cut off")
    normalizer = normalizers.Precompiled(rules)
    normalizer.normalize_str("".join(map(chr, (*range(0xD800), *range(0xE000, 0x30000)))))
    return normalizer


def _parse(path: Path) -> Any:
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    try:
        model.ParseFromString(read_bytes(path, max_bytes=MAX_BYTES))
    except Exception as error:  # Also of protobuf, which does not say which.
        raise DataError(f"{path} cannot be read as a SentencePiece model: {error}.") from error
    trainer, rules = model.trainer_spec, model.normalizer_spec
    is_usual = (
        trainer.model_type == trainer.UNIGRAM
        and not (trainer.byte_fallback or trainer.treat_whitespace_as_suffix)
        and (rules.remove_extra_whitespaces and rules.add_dummy_prefix)
        and not any(piece.type == piece.USER_DEFINED for piece in model.pieces)
    )
    if not is_usual:
        raise DataError(f"{path} cannot be imported: only unigram models without special options can.")
    return model
