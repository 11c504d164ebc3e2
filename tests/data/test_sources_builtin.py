"""The built-in corpora, as `load_corpus` gives them."""

import pytest

from mt.config.data import DataConfig
from mt.data.corpus import load_corpus, load_split
from mt.errors import DataError


def config(path: str, src: str = "en", tgt: str = "de", **fields: object) -> DataConfig:
    return DataConfig.model_validate({"path": path, "src": src, "tgt": tgt, **fields})


@pytest.mark.parametrize(
    ("path", "num_train_pairs"),
    [("builtin:primer", 40_000), ("builtin:reverse", 20_000)],
)
def test_the_usual_sizes_and_disjoint_sources(path: str, num_train_pairs: int) -> None:
    corpus = load_corpus(config(path))
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == (num_train_pairs, 500, 1000)
    train = set(corpus.train["src"])
    assert not train & {*corpus.validation["src"], *corpus.test["src"]}
    assert corpus.report.sources[0].kind == "built-in"


def test_the_primer_goes_both_ways() -> None:
    forth = load_split(config("builtin:primer"), "test")
    back = load_split(config("builtin:primer", src="de", tgt="en"), "test")
    assert (back["src"][:], back["tgt"][:]) == (forth["tgt"][:], forth["src"][:])


def test_reversing_has_no_language() -> None:
    rows = load_split(config("builtin:reverse", src="words", tgt="sdrow"), "test")[:]
    assert all(src.split() == tgt.split()[::-1] for src, tgt in zip(rows["src"], rows["tgt"], strict=True))
    assert load_split(config("builtin:reverse", src="de", tgt="en"), "test")[:] == rows


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"path": "builtin:primer", "tgt": "fr"}, r"English and German: .* not 'en' and 'fr'"),
        ({"path": "builtin:primer", "num_train_pairs": 150_001}, r"150,000 training pairs, but .*: lower"),
        ({"path": "builtin:prime"}, r"no built-in corpus 'builtin:prime', only .*mean 'builtin:primer'"),
    ],
)
def test_what_is_not_built_in(fields: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_corpus(DataConfig.model_validate({"src": "en", "tgt": "de", **fields}))
