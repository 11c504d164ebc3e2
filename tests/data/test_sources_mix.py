"""Several sources with weights: what is trained on, evaluated on and recorded; and the built-in corpora."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest
from pydantic import ValidationError

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.data.batches.sampler import epoch_batches
from mt.data.corpus import load_corpus, load_split, sets_of_sources
from mt.data.prepare import prepare
from mt.data.sources.find import find_source, find_sources
from mt.errors import DataError
from mt.run_directory import RunDirectory
from tests.data.corpora import data_config, jsonl, pairs_of, write


def numbered(word: str, count: int) -> str:
    return jsonl({"en": f"{word} {i}", "de": f"{word}! {i}"} for i in range(count))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """``main`` and ``news`` have all splits, ``talks.csv`` has other columns."""
    sizes = {"main": (50, 3, 2), "news": (20, 4, 5)}
    for name, (train, dev, test) in sizes.items():
        write(
            tmp_path / name, {"train.jsonl": numbered(name, train), "dev.jsonl": numbered(f"{name}-dev", dev)}
        )
        write(tmp_path / name, {"test.jsonl": numbered(f"{name}-test", test)})
    return write(tmp_path, {"talks.csv": "english,german\nhello there,hallo du\nbye,Tschüs\n"})


def config(folder: Path, mix: str, **fields: object) -> DataConfig:
    values = {"mix": mix.format(folder), "held_out_fraction": 0.2, "path": str(folder / "main"), **fields}
    return data_config(**values)


THREE = "{0}/news weight=2.5 num_train_pairs=10\n\n  {0}/talks.csv src=english tgt=german weight=0.5\n"


def test_the_sources_stand_one_after_the_other_each_with_its_share(folder: Path) -> None:
    corpus = load_corpus(config(folder, THREE))
    words = [text.split()[0] for text in corpus.train["src"]]
    assert words == ["main"] * 50 + ["news"] * 10 + ["hello", "bye"]
    assert corpus.train["tgt"][-1] == "Tschüs"
    assert [tuple(share)[:3] for share in corpus.shares] == [(50, 1.0, "de"), (10, 2.5, "de"), (2, 0.5, "de")]


def test_the_options_of_the_first_source_are_not_those_of_the_others(folder: Path) -> None:
    write(
        folder, {"own.csv": "english;german\n" + "".join(f"{s} {i};{i}\n" for i in range(50) for s in "ab")}
    )
    write(folder, {"more.txt": "1\tmore\tmehr\n", "usual.tsv": "de\ten\nüblich\tusual\n"})
    own = {"columns": "english,german", "delimiter": "semicolon", "num_train_pairs": 10}
    mix = "{0}/more.txt columns=2,3 delimiter=tab\n{0}/usual.tsv\n{0}/news"
    data = config(folder, mix, path=str(folder / "own.csv"), **own)
    train = load_corpus(data).train
    assert (len(train), pairs_of(train)[10:12]) == (32, [("more", "mehr"), ("usual", "üblich")])
    # Nor are those that only the Hub needs.
    on_hub = data.model_copy(update={"name": "a", "revision": "b"})
    name, found, weight, *_ = find_sources(on_hub)[-1]
    alone = config(folder, "", path=str(folder / "news")).model_copy(update={"mix": None})
    assert (name, found, weight) == ("mix3", alone, 1)


@pytest.mark.parametrize("missing", [(), ("dev",), ("dev", "test")])
def test_validation_and_test_are_those_of_the_first_source(folder: Path, missing: tuple[str, ...]) -> None:
    for name in missing:
        (folder / f"main/{name}.jsonl").unlink()
    corpus = load_corpus(config(folder, THREE))
    splits = corpus.by_name()
    for rows, name in ((splits["validation"], "dev"), (splits["test"], "test")):
        words = {text.split()[0] for text in rows["src"]}
        assert words == ({"main"} if name in missing else {f"main-{name}"})
    sets = sets_of_sources(config(folder, THREE), "validation")
    others = {name: rows["src"][:] for name, (rows, _) in sets.items()}
    assert others == {"mix1": [f"news-dev {i}" for i in range(4)]}
    for split, rows in splits.items():
        assert load_split(config(folder, THREE), split)[:] == rows[:]


def test_a_source_may_have_other_languages_and_columns_name_the_files_of_text(folder: Path) -> None:
    write(folder, {"train.english": "a\nb\n", "train.german": "c\nd\n", "train.en": "e\n", "train.de": "f\n"})
    sources = {
        "forth": {"path": f"{folder}/train", "columns": "english,german"},
        "back": {"path": f"{folder}/train", "src": "de", "tgt": "en"},
        "news": {"path": f"{folder}/news", "src": "de", "tgt": "en", "num_train_pairs": 1},
        "named": {"path": f"{folder}/train.german", "columns": "german,english"},
    }
    data = data_config(folder / "main", sources=sources)
    corpus = load_corpus(data)
    pairs = [("a", "c"), ("b", "d"), ("f", "e"), ("news! 0", "news 0"), ("c", "a"), ("d", "b")]
    assert pairs_of(corpus.train)[50:] == pairs
    directions = [source.direction for source in corpus.report.sources]
    assert directions == [("en", "de"), ("en", "de"), ("de", "en"), ("de", "en"), ("en", "de")]
    [(name, found)] = sets_of_sources(data, "validation").items()
    assert (name, found.direction, found.pairs["tgt"][0]) == ("news", ("de", "en"), "news-dev 0")


def in_three_languages(folder: Path) -> str:
    rows = [{"en": f"dog {i}", "de": f"Hund {i}", "fr": f"chien {i}"} for i in range(400)]
    return str(write(folder, {"train.jsonl": jsonl(rows)}))


def test_what_is_held_out_in_one_direction_is_not_trained_on_in_another(tmp_path: Path) -> None:
    def numbers_of(sources: Iterable[str]) -> set[str]:
        return {text.split()[1] for text in sources}

    path, small = in_three_languages(tmp_path / "all"), tmp_path / "small"
    write(small, {"train.jsonl": jsonl([{"de": "Katze -", "fr": "chat -"}])})
    sources = {
        "back": {"path": path, "src": "de", "tgt": "en"},
        # The English side decides, although this one comes first.
        "fr-en": {"path": path, "src": "fr", "tgt": "en"},
        "en-fr": {"path": path, "tgt": "fr"},
        "same": {"path": path},
        "small": {"path": str(small), "src": "de", "tgt": "fr"},
    }
    data = data_config(path, sources=sources, held_out_fraction=0.1)
    corpus = load_corpus(data)
    own, tests = (numbers_of(split["src"]) for split in (corpus.validation, corpus.test))
    assert min(len(own), len(tests)) > 20
    # Pairs of the own direction are only for training, and nothing is held out of a single pair.
    sets = sets_of_sources(data, "validation")
    assert [*sets] == ["back", "fr-en", "en-fr"]
    assert [numbers_of(pairs["src"]) for pairs, _ in sets.values()] == [own] * 3
    size = 400 - len(own | tests)
    assert [source.pairs for source in corpus.report.sources] == [size, size, size, size, 400, 1]
    assert numbers_of(corpus.train["src"][: 4 * size]).isdisjoint(own | tests)
    assert corpus.report.sources[2].held_out["test"].pairs == len(tests)


@pytest.mark.parametrize("others", [["de-fr", "fr-de"], ["fr-de", "de-fr"]])
def test_two_languages_without_that_of_the_run_are_split_as_the_first_such_source_is(
    others: list[str], tmp_path: Path
) -> None:
    path = in_three_languages(tmp_path)
    sources = {name: {"path": path, "src": name[:2], "tgt": name[3:]} for name in others}
    data = data_config(path, sources=sources, held_out_fraction=0.1)
    src, tgt = others[0].split("-")
    alone = load_corpus(data_config(path, src=src, tgt=tgt, held_out_fraction=0.1))
    first, second = sets_of_sources(data, "test").values()
    assert pairs_of(first.pairs) == pairs_of(alone.test)
    assert pairs_of(second.pairs) == [(tgt, src) for src, tgt in pairs_of(alone.test)]


def test_a_leak_into_the_other_direction_is_found(folder: Path) -> None:
    write(folder, {"leak/train.jsonl": numbered("main-dev", 3), "leak/dev.jsonl": numbered("dev", 1)})
    back = {"path": f"{folder}/leak", "src": "de", "tgt": "en"}
    report = load_corpus(data_config(folder / "main", sources={"back": back})).report
    assert (report.leaks["validation"].pair, report.leaks["test"].pair) == (3, 0)


def test_every_source_is_recorded(folder: Path) -> None:
    report = load_corpus(config(folder, THREE)).report
    assert [
        (each.kind, each.weight, each.pairs, each.path, each.src, each.tgt) for each in report.sources
    ] == [
        ("folder", 1.0, 50, f"{folder}/main", "en", "de"),
        ("folder", 2.5, 10, f"{folder}/news", "en", "de"),
        ("files", 0.5, 2, f"{folder}/talks.csv", "en", "de"),
    ]
    train = report.splits["train"]
    assert (train.pairs, train.origin, len(train.fingerprint)) == (62, "given", 16)
    assert train.parts == [
        f"{folder}/{name}" for name in ("main/train.jsonl", "news/train.jsonl", "talks.csv")
    ]
    alone = load_corpus(config(folder, "", path=str(folder / "news"), num_train_pairs=10)).report
    assert report.sources[1].fingerprint == alone.splits["train"].fingerprint
    write(folder, {"talks.csv": "english,german\nhello there,hallo du\nbye,Tschüß\n"})
    changed = load_corpus(config(folder, THREE)).report
    assert changed.splits["train"].fingerprint != train.fingerprint
    assert changed.splits["test"].fingerprint == report.splits["test"].fingerprint


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ("{0}/nwes weight=2", r"^data\.sources\.mix1: data\.path: there is no file or folder"),
        ("{0}/talks.csv", r"talks\.csv has no column 'en'"),
        ("{0}/*.tsv", r"^data\.sources\.mix1: .*no file or folder .*\*\.tsv"),
        ("builtin:primr", r"^data\.sources\.mix1: .*no built-in corpus"),
        ("{0}/empty.csv", r"^No pair of .*empty\.csv can be trained on: in 2 rows the target is empty\.$"),
    ],
)
def test_a_mistake_in_a_source_is_reported_with_its_name(folder: Path, mix: str, message: str) -> None:
    write(folder, {"empty.csv": "en,de\na,\nb,\n"})
    with pytest.raises(DataError, match=message):
        load_corpus(config(folder, mix))


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ("news wieght=2", r"data\.mix: in 'news wieght=2', wieght=2 cannot be used; .* weight=, name="),
        ("news columns=1", r"data\.mix: in 'news columns=1', columns"),
        ("news weight=0", r"data\.mix: in 'news weight=0', weight=0 cannot be used"),
        ("news weight=nan", "weight=nan cannot be used"),
        ("news weight=1000.1", "weight=1000.1 cannot be used"),
        ("news num_train_pairs=0", "num_train_pairs=0 cannot be used"),
        ("a\nnews src=", r"in 'news src=', src= cannot be used"),
        ("news num_train_pairs=1e3", "num_train_pairs=1e3 cannot be used"),
    ],
)
def test_a_line_that_cannot_be_understood(mix: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        data_config("x", mix=mix)
    data_config("x", mix="news weight=1000 num_train_pairs=1")


@pytest.mark.parametrize(("weight", "is_shown"), [(0.2, False), (0.3, True)])
def test_a_weight_says_whether_a_source_is_shown(
    weight: float, is_shown: bool, folder: Path, tmp_path: Path
) -> None:
    data = config(folder, f"{{0}}/talks.csv src=english tgt=german weight={weight}")
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    whole = Config.model_validate({"data": data, "training": {"max_steps": 1}})
    train = prepare(whole, run, resuming=False).train
    lengths = train.src.lengths, train.tgt.lengths
    shown = epoch_batches(*lengths, batch_tokens=100, seed=1, epoch=0, shares=train.shares)
    assert (sum(map(len, shown)) > train.shares[0].num_pairs) == is_shown


@pytest.mark.parametrize(
    ("path", "num_train_pairs"),
    [("builtin:primer", 40_000), ("builtin:reverse", 20_000), ("builtin:reverse-characters", 20_000)],
)
def test_the_usual_sizes_and_disjoint_sources(path: str, num_train_pairs: int) -> None:
    corpus = load_corpus(data_config(path))
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == (num_train_pairs, 500, 1000)
    train = set(corpus.train["src"])
    assert not train & {*corpus.validation["src"], *corpus.test["src"]}
    assert corpus.report.sources[0].kind == "built-in"
    assert {split.origin for split in corpus.report.splits.values()} == {"generated"}


def test_the_primer_goes_both_ways() -> None:
    forth = load_split(data_config("builtin:primer"), "test")
    back = load_split(data_config("builtin:primer", src="de", tgt="en"), "test")
    assert (back["src"][:], back["tgt"][:]) == (forth["tgt"][:], forth["src"][:])
    [part] = find_source(data_config("builtin:primer", num_train_pairs=150_000)).splits["train"]
    assert [number for number, _, _ in islice(part.pairs(), 2)] == [1, 2]


def test_reversing_has_no_language() -> None:
    rows = load_split(data_config("builtin:reverse", src="words", tgt="sdrow"), "test")[:]
    assert all(src.split() == tgt.split()[::-1] for src, tgt in zip(rows["src"], rows["tgt"], strict=True))
    rows_of_letters = load_split(data_config("builtin:reverse-characters"), "validation")
    assert all(src == tgt[::-1] for src, tgt in pairs_of(rows_of_letters))
    assert load_split(data_config("builtin:reverse", src="de", tgt="en"), "test")[:] == rows


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
        load_corpus(data_config(**fields))
