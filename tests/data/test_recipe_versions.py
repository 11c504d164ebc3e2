"""A cache entry is found by the version of the recipe that made it: no output changes without its version.

This file holds the digest of what each recipe makes of a fixed input. Where one has changed on purpose, raise
the version and replace the digest; where only a library has changed, the digest alone.
"""

import gzip
import hashlib
import itertools
import json
from collections.abc import Iterable
from pathlib import Path

import datasets
import numpy as np
import pytest

from mt.builtin.primer import primer_pairs
from mt.builtin.reverse import reverse_pairs
from mt.config.config import Config
from mt.config.data import CleaningConfig
from mt.data import corpus
from mt.data.batches import alignment, dataset
from mt.data.batches.sampler import Share
from mt.data.cache import RECIPE_VERSION
from mt.data.prepare import make_tokenizers
from tests.data.corpora import Pairs, data_config, jsonl, parallel, write

# By the name of the constant, its value, and what is made.
DIGESTS = {
    ("RECIPE_VERSION", 5, "corpus"): "8ab03dbd67b621d2246dad5c87d23f83",
    ("none", 0, "tokenizers"): "66d11a72d501ec47466035f28ee6c61c",
    ("RECIPE_VERSION", 5, "ids"): "e4f3d192250ec509db321638272342e1",
    ("RECIPE_VERSION", 5, "alignment"): "a3dfe0bca65338d0a50be74b810586f5",
    ("RECIPE_VERSION", 5, "reverse"): "6dc3b6f4e960ae5bb261c1ffb59944cf",
}

TEXTS: Pairs = [
    ("A dog runs across the field.", "Ein Hund läuft über das Feld."),
    ('She said: "don\'t!"', "Sie sagte: „nicht!“"),
    ("Number 1,234.56 (about 7%)", "Nummer 1.234,56 (etwa 7 %)"),
    ("他说hello，世界。", "彼は「こんにちは」と言った。ラーメン"),
    ("ภาษาไทย ง่าย", "ພາສາລາວ ខ្មែរ မြန်မာ"),
    ("mark ￭ and ▁ and \ue000 and <s>", "<unk> </s> <pad> ｶﾀｶﾅ"),
    ("cafe\u0301 ﬁne \u00a0 spaced\u3000out", "Straße İstanbul ΣΑΣ"),
    ("emoji 👍🏽 𠀀 and \U0001f600", "Ελλάδα Москва हिन्दी العربية"),
    ("  the  dog   and the dog ", "der Hund und der Hund\t"),
    ("a-b_c/d@e.f #x", "ein Hund – ein Kind … läuft"),
]  # fmt: skip


def digest(*parts: object) -> str:
    """Digest of texts, arrays and whatever can be written as JSON."""
    whole = hashlib.sha256()
    for part in parts:
        content = part.tobytes() if isinstance(part, np.ndarray) else json.dumps(part).encode()
        whole.update(b"%d:" % len(content) + content)
    return whole.hexdigest()[:32]


def check(constant: str, version: int, what: str, found: str) -> None:
    assert found == DIGESTS.get((constant, version, what)), f"{what}: raise {constant}, and note {found!r}"


def as_dataset(pairs: Iterable[tuple[str, str]]) -> datasets.Dataset:
    src, tgt = zip(*pairs, strict=True)
    return datasets.Dataset.from_dict({"src": list(src), "tgt": list(tgt)})


def config(**tokenizer_fields: object) -> Config:
    fields = {
        "data": {"path": "x", "src": "en", "tgt": "de"},
        "cleaning": {"unicode_form": "none", "invisible": "keep"},
        "tokenizer": {"min_frequency": 1, **tokenizer_fields},
        "training": {"max_steps": 1},
    }
    return Config.model_validate(fields)


KINDS = {"word": {}, "char": {"max_size": 300}, "bpe": {"max_size": 330}, "bpe_metaspace": {"max_size": 400}}


def test_reading_and_cleaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Relative paths, because the report names them.
    monkeypatch.chdir(tmp_path)
    many = [(f"{src} {i}", f"{tgt} {i}") for i in range(20) for src, tgt in TEXTS]
    dirty: list[tuple[object, object]] = [
        *TEXTS,
        *[(f"short {i}", f"kurz {i}") for i in range(9)],
        ("", "x"), (None, "x"), ("x", None), (7, "x"), ("x", "  "),
        ("a\x07b and more", "ein Zeichen"), ("no", "x"), ("x" * 90, "y" * 80),
        ("abcdefgh", "a" * 40), ("the same text", "the same text"), ("Привет мир", "Hallo Welt"),
        # Pairs at the limits of the filters, which are kept.
        ("abc где", "abc gde"), ("abcd", "abcdefghijkl"), ("xyz", "uvw"), ("x" * 60, "y" * 60),
        TEXTS[0], ("short 3", "kurz 3"), ("SHORT 4!", "Kurz 4"),
    ]  # fmt: skip
    given: dict[str, list[tuple[object, object]]] = {
        "train": dirty,
        "dev": [("short 5", "kurz 5"), ("", "leer")],
        "test": [("A DOG runs across the field", "ein anderer Hund"), ("short 4", "kurz 4")],
    }
    for split, pairs in given.items():
        write(Path("given"), {f"{split}.jsonl": jsonl({"en": src, "de": tgt} for src, tgt in pairs)})
    more = parallel("more", [(src.strip(), tgt.strip()) for src, tgt in many])
    write(tmp_path, {f"{name}.gz": gzip.compress(str(text).encode()) for name, text in more.items()})
    cleaning = CleaningConfig.model_validate(
        {
            "unicode_form": "NFKC",
            "min_characters": 3,
            "max_characters": 60,
            "max_length_ratio": 3.0,
            "remove_control_characters": True,
            "src_script": "Latin",
            "remove_identical": True,
            "remove_duplicates": True,
            "remove_leaks": True,
        }
    )
    found: list[object] = []
    for path, mix, how in (
        ("more", "given/train.jsonl weight=2.5 num_train_pairs=7", corpus.NO_CLEANING),
        ("given", "", cleaning),
        ("more", "", cleaning.model_copy(update={"src_script": "any"})),
    ):
        loaded = corpus.load_corpus(data_config(path, mix=mix, held_out_fraction=0.1), how)
        found += [loaded.train[:], loaded.validation[:], loaded.test[:]]
        found += [loaded.shares, loaded.report.model_dump(mode="json")]
        if path == "given" and not mix:
            # The fixed input meets every reason to drop a pair.
            assert len(loaded.report.splits["train"].dropped) == 13, loaded.report.splits["train"].dropped
    check("RECIPE_VERSION", RECIPE_VERSION, "corpus", digest(*found))


def test_making_tokenizers() -> None:
    found = []
    for (kind, fields), lowercase, shared in itertools.product(KINDS.items(), (False, True), (False, True)):
        made = make_tokenizers(
            as_dataset(TEXTS * 2), config(kind=kind, lowercase=lowercase, shared=shared, **fields)
        )
        found += [each.to_json() for each in made]
    for cleaning in (CleaningConfig(unicode_form="NFKC", invisible="keep"), CleaningConfig()):
        rewriting = config().model_copy(update={"cleaning": cleaning})
        found += [each.to_json() for each in make_tokenizers(as_dataset(TEXTS), rewriting)]
    check("none", 0, "tokenizers", digest(*found))


def test_encoding(tmp_path: Path) -> None:
    pairs = as_dataset([*TEXTS, ("", "leer"), ("unseen wörds 龍", "nie gesehen ☃")] * 2)
    shares = (Share(10, 1.0), Share(14, 2.5))
    found: list[object] = []
    for (kind, fields), max_length in itertools.product(KINDS.items(), (7, 8, 40)):
        tokenizers = make_tokenizers(as_dataset(TEXTS), config(kind=kind, **fields))
        folder = tmp_path / f"{kind} {max_length}"
        folder.mkdir()
        dataset.write_pairs(folder, pairs, tokenizers, max_length=max_length, shares=shares)
        # The files themselves, for these are what is cached.
        found += [
            (file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in sorted(folder.iterdir())
        ]
    check("RECIPE_VERSION", RECIPE_VERSION, "ids", digest(*found))


def test_aligning() -> None:
    pairs = [*primer_pairs("train", 300), *reverse_pairs("train", 100)]
    tokenizers = make_tokenizers(as_dataset(pairs), config())
    encoded, _ = dataset.encode_pairs(as_dataset(pairs), tokenizers, max_length=100)
    places = alignment.align(encoded)
    assert 0.2 < np.mean(places != alignment.NONE) < 1
    check("RECIPE_VERSION", RECIPE_VERSION, "alignment", digest(places))


def test_reversing() -> None:
    found = [
        [*reverse_pairs(split, 500), *reverse_pairs(split, 500, characters=True)]
        for split in ("train", "validation", "test")
    ]
    check("RECIPE_VERSION", RECIPE_VERSION, "reverse", digest(*found))
