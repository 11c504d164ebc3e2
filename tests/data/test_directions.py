"""Directions in the data: the id before each source, what it counts for, and how often small ones come."""

from pathlib import Path

import datasets
import numpy as np
import pytest

from mt.config.config import Config
from mt.data.batches.alignment import NONE, align
from mt.data.batches.dataset import encode_pairs
from mt.data.batches.sampler import Share
from mt.data.batches.transforms import Transform, Transforms
from mt.data.corpus import load_corpus
from mt.data.prepare import make_tokenizers
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.sides import Sides
from mt.special_tokens import SPECIAL_TOKENS
from tests.data.corpora import data_config, jsonl, write

SOURCES = {"fr": {"path": "x", "tgt": "fr"}, "back": {"path": "x", "src": "de", "tgt": "en"}}
TEXTS = datasets.Dataset.from_dict(
    {"src": ["a b c"] * 40 + ["d e"] * 40, "tgt": ["x y z"] * 40 + ["v w"] * 40}
)


def made(sources: object = SOURCES, **tokenizer: object) -> Sides[Tokenizer]:
    data = data_config("x", sources=sources)
    config = Config.model_validate({"data": data, "tokenizer": tokenizer, "training": {"max_steps": 1}})
    return make_tokenizers(TEXTS, config)


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "bpe_metaspace"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_new_vocabulary_has_an_id_for_each_language_behind_the_special_tokens(
    kind: str, shared: bool
) -> None:
    src, tgt = made(kind=kind, shared=shared, max_size=300)
    first = len(SPECIAL_TOKENS)
    expected = {"<to:de>": first, "<to:fr>": first + 1, "<to:en>": first + 2}
    assert src.reserved == expected
    assert tgt.reserved == (expected if shared else {})
    assert (src.beginning("fr"), src.beginning("it")) == ([first + 1], [])


def test_several_sources_into_one_language_need_no_id() -> None:
    sources = {"fr": {"path": "x", "src": "fr"}, "more": {"path": "y"}}
    assert data_config("x", sources=sources).directions == [("en", "de"), ("fr", "de")]
    assert made(sources).src.reserved == made({}).src.reserved == {}


def test_a_language_whose_name_cannot_be_that_of_an_id_is_refused() -> None:
    with pytest.raises(ValueError, match=r"data\.tgt: 'a <b>' cannot be the name of one of several"):
        data_config("x", sources={"odd": {"path": "x", "tgt": "a <b>"}})


def test_the_id_takes_a_position_and_an_empty_source_stays_empty() -> None:
    tokenizers = made()
    texts = {"src": ["a b c", "d", "", "a b"], "tgt": ["x y", "v", "w", ""]}
    shares = (Share(1, 1.0, "de"), Share(3, 1.0, "fr"))
    pairs, dropped = encode_pairs(datasets.Dataset.from_dict(texts), tokenizers, max_length=5, shares=shares)
    words = [tokenizers.src.encode(text) for text in ("a b c", "d")]
    assert [ids.tolist() for ids in pairs.src] == [[4, *words[0]], [5, *words[1]]]
    assert pairs.src.lengths.tolist() == [5, 3]
    assert dropped == {"empty": 2, "too long": 0}
    _, dropped = encode_pairs(datasets.Dataset.from_dict(texts), tokenizers, max_length=4, shares=shares)
    assert dropped == {"empty": 2, "too long": 1}


def test_no_word_is_aligned_with_the_id() -> None:
    tokenizers = made()
    pairs, _ = encode_pairs(TEXTS, tokenizers, max_length=9, shares=[Share(80, 1.0, "fr")])
    positions = align(pairs, tokenizers.src.reserved.values())
    assert 0 not in positions
    assert (positions != NONE).mean() > 0.5
    # Otherwise as without it.
    plain, _ = encode_pairs(TEXTS, tokenizers, max_length=9)
    without = align(plain)
    assert np.mean(np.where(without == NONE, NONE, without + 1) == positions) > 0.9


def test_a_changed_source_keeps_its_id() -> None:
    tokenizers = made(kind="char")
    pairs, _ = encode_pairs(TEXTS, tokenizers, max_length=9, shares=[Share(80, 1.0, "fr")])

    def change(row: int, text: Sides[str], generator: np.random.Generator) -> Sides[str]:
        return Sides("c", "z") if row % 2 else Sides("", "z")

    changed = Transforms([Transform("test", 1.0, change)], TEXTS, tokenizers, 9)(pairs, 1, 0)
    assert changed.src[1].tolist() == [5, *tokenizers.src.encode("c")]
    assert changed.shares == pairs.shares
    # Empty but for the id: it stays as it was.
    assert changed.src[2].tolist() == pairs.src[2].tolist()


def test_small_directions_are_shown_more_often_with_a_temperature(tmp_path: Path) -> None:
    for split, count in {"train": 200, "dev": 1, "test": 1}.items():
        rows = [{"en": f"{split} {i}", "de": f"de {i}", "fr": f"fr {i}"} for i in range(count)]
        write(tmp_path, {f"{split}.jsonl": jsonl(rows)})
    sources = {
        "more": {"path": str(tmp_path), "num_train_pairs": 40, "weight": 0.5},
        "small": {"path": str(tmp_path), "num_train_pairs": 20, "weight": 2, "tgt": "fr"},
    }
    shares = load_corpus(data_config(tmp_path, sources=sources)).shares
    assert [tuple(share)[:3] for share in shares] == [(200, 1.0, "de"), (40, 0.5, "de"), (20, 2.0, "fr")]
    corpus = load_corpus(data_config(tmp_path, sources=sources, temperature=2))
    own, more, small = corpus.shares
    # 220 pairs of one direction, 40 of the other: a share of sqrt(40 / 220) of the larger.
    assert (own.weight, more.weight) == (1.0, 0.5)
    assert small.weight * 20 == pytest.approx(220 * (40 / 220) ** 0.5)
    assert corpus.report.temperature == 2
    assert [source.weight for source in corpus.report.sources] == [1.0, 0.5, 2.0]
