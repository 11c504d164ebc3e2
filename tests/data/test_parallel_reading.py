"""A corpus that several processes read is, byte for byte, the one that a single process reads."""

import gzip
import json
import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mt import display
from mt.config.config import Config
from mt.config.data import CleaningConfig, DataConfig
from mt.config.training import TrainingConfig
from mt.data import corpus as corpus_module
from mt.data import pair_table, parallel_reading, prepared_cache
from mt.data.corpus import Corpus, load_corpus
from mt.data.corpus_report import to_json
from mt.data.prepare import prepare
from mt.data.sources.find import find_source
from mt.errors import DataError
from mt.run_directory import RunDirectory

CLEANING = CleaningConfig(
    unicode_form="NFC",
    remove_control_characters=True,
    min_characters=2,
    max_characters=60,
    max_length_ratio=3,
    tgt_script="Latin",
    remove_identical=True,
    remove_duplicates=True,
    remove_leaks=True,
)
# Met by one reason each, or by none; the last are the same under NFC.
ROWS = [
    ("a dog runs", "ein Hund rennt"),
    ("two men talk", "zwei Männer reden"),
    ("", "leer"),
    ("empty", "  "),
    ("bell\x07", "Glocke"),
    ("x", "y"),
    ("long " * 20, "lang " * 20),
    ("brief", "sehr, sehr, sehr, sehr lang"),
    ("in Russian", "по-русски"),
    ("the same", "the same"),
    ("line\u2028separator", "Zeilen\u2028trenner"),
    ("caf\u00e9 au lait", "Milchkaffee"),
    ("cafe\u0301 au lait", "Milchkaffee"),
    # The same as each other if punctuation does not count; some are carved.
    *(("a cat sleeps" + "." * i, "eine Katze schläft") for i in range(10)),
]
# JSON can lack text in more ways.
JSON_ROWS = [*ROWS, ("number", 7), ("nothing", None), (None, "nichts"), (["list"], "Liste")]


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(parallel_reading, "SMALLEST_BYTES", 1)
    monkeypatch.setattr(parallel_reading, "PIECE_BYTES", 100)
    monkeypatch.setattr(corpus_module, "CHUNK_SIZE", 7)
    for other in (corpus_module, pair_table, prepared_cache):
        monkeypatch.setattr(other, "PAIRS_IN_MEMORY", 50)
    monkeypatch.setenv("MT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other processes would do is done here, with copies as they would get and return them."""

    def map_in_order(
        function: Callable[[object], object], tasks: Iterable[object], num_processes: int
    ) -> Iterator[object]:
        assert num_processes == 2
        for task in tasks:
            yield pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(task)))))

    monkeypatch.setattr(parallel_reading, "map_in_order", map_in_order)


def config(path: object, workers: int, **fields: object) -> DataConfig:
    return DataConfig.model_validate(
        {"path": str(path), "src": "en", "tgt": "de", "workers": workers, **fields}
    )


def many_rows(count: int) -> list[tuple[str, str]]:
    chosen = random.Random(3)
    # Some are there twice, far from each other, and each reason is met for the first time at another place.
    return [
        ROWS[min(chosen.randrange(len(ROWS)), i // 12)]
        if chosen.random() < 0.5
        else (f"row {i}", f"Zeile {i}")
        for i in range(count)
    ] + [("row 0", "Zeile 0"), ("a dog runs", "ein Hund rennt")]


def write(path: Path, rows: Sequence[tuple[object, object]], newline: str = "\n") -> None:
    """In the form that the name asks for: parallel text, JSONL or TSV."""
    if path.suffix == ".jsonl":
        lines = [json.dumps({"translation": {"en": en, "de": de}}, ensure_ascii=False) for en, de in rows]
        lines.insert(len(lines) // 2, "")
        path.write_text(newline.join(["", *lines]) + newline, encoding="utf-8", newline="")
    elif path.suffix == ".tsv":
        lines = ["de\tmore\ten", *(f"{de}\t\t{en}" for en, de in rows)]
        path.write_text("\ufeff" + newline.join(lines), encoding="utf-8", newline="")
    else:
        for side, ending in enumerate(("en", "de")):
            lines = [str(row[side]) for row in rows]
            path.with_name(f"{path.name}.{ending}").write_text(
                newline.join(lines) + newline, encoding="utf-8", newline=""
            )


def content(corpus: Corpus) -> object:
    splits = [(split["src"][:], split["tgt"][:]) for split in (corpus.train, corpus.validation, corpus.test)]
    # As text, because the order of the reasons is seen in tables.
    return splits, corpus.shares, json.dumps(to_json(corpus.report))


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("name", ["corpus", "corpus.jsonl", "corpus.tsv"])
def test_two_processes_give_what_one_gives(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / name, many_rows(400), "\r\n" if name == "corpus" else "\n")
    found = []
    for workers in (1, 2):
        folder = tmp_path / f"of {workers}"
        monkeypatch.setenv("MT_CACHE", str(folder / "cache"))
        run = RunDirectory(folder / "run")
        run.path.mkdir(parents=True)
        data = config(tmp_path / name, workers, held_out_fraction=0.1)
        whole = Config(data=data, cleaning=CLEANING, training=TrainingConfig(max_steps=1))
        prepared = prepare(whole, run, resuming=False)
        found.append((content(prepared.corpus), files(folder)))
    assert found[0] == found[1]
    assert {path.rpartition("/")[2] for path in found[0][1]} > {"corpus.json", "train.arrow", "src_ids"}
    # The input meets what it is meant to meet.
    report = prepared.corpus.report.splits
    assert len(report.train.dropped) == 10, report.train.dropped
    assert report.train.rewritten
    assert min(report.train.pairs, report.validation.pairs, report.test.pairs) > 10


@pytest.mark.usefixtures("without_processes")
@pytest.mark.parametrize("num_bytes", [1, 2, 13, 64, 1000, 10**6])
@pytest.mark.parametrize("name", ["corpus", "corpus.jsonl", "corpus.tsv"])
def test_pieces_of_any_size_give_the_same_corpus(
    name: str, num_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece of one byte ends where its line ends, and most lines are longer than a piece."""
    other = f"other-{name}"
    write(tmp_path / name, many_rows(150))
    write(tmp_path / other, many_rows(300)[100:])
    monkeypatch.setattr(parallel_reading, "PIECE_BYTES", num_bytes)
    found = []
    for workers in (1, 2):
        monkeypatch.setenv("MT_CACHE", str(tmp_path / f"cache of {workers}"))
        mix = f"{tmp_path / other} weight=2"
        corpus = load_corpus(config(tmp_path / name, workers, mix=mix, held_out_fraction=0.1), CLEANING)
        found.append(content(corpus))
    assert found[0] == found[1]


def contents_or_errors(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cleaning: CleaningConfig, mix: str
) -> list[object]:
    """What one process makes of ``corpus.jsonl``, and what two make of it."""
    found: list[object] = []
    for workers in (1, 2):
        monkeypatch.setenv("MT_CACHE", str(folder / f"cache of {workers}"))
        data = config(folder / "corpus.jsonl", workers, mix=mix, held_out_fraction=0.1)
        try:
            found.append(content(load_corpus(data, cleaning)))
        except DataError as error:
            found.append(str(error))
    return found


@pytest.mark.usefixtures("without_processes")
@pytest.mark.parametrize("seed", range(30))
def test_a_random_corpus_is_the_same_or_refused_with_the_same_sentence(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is cleaned and carved, and whatever was read before."""
    chosen = random.Random(seed)
    for name in ("corpus.jsonl", "other.jsonl"):
        pool = chosen.sample(JSON_ROWS, chosen.randint(1, len(JSON_ROWS)))
        share = chosen.choice([0.1, 0.5, 1.0])
        rows = [
            chosen.choice(pool) if chosen.random() < share else (f"row {i % 40}", f"Zeile {i % 40}")
            for i in range(chosen.randint(20, 120))
        ]
        write(tmp_path / name, rows)
    cleaning = CleaningConfig.model_validate(
        {name: value for name, value in CLEANING.model_dump().items() if chosen.random() < 0.6}
    )
    mix = f"{tmp_path / 'other.jsonl'} weight=2" if chosen.random() < 0.5 else ""
    monkeypatch.setattr(parallel_reading, "PIECE_BYTES", chosen.choice([1, 60, 300, 2000]))
    one, two = contents_or_errors(tmp_path, monkeypatch, cleaning, mix=mix)
    assert one == two


BYTES = st.sampled_from(
    b'a|b c|\n|\n|\r\n|\r|\t|\xff|\xc3\xa4|\xef\xbb\xbf|{"en": "x", "de": "y"}|"|\xe2\x80\xa8|en\tde'.split(
        b"|"
    )
)
NESTED_ROWS = (
    '{"translation": null}',
    '{"translation": {"en": "x"}}',
    '{"translation": {"en": "x", "de": "y"}}',
    '{"translation": "x"}',
    '{"en": "x", "de": "y"}',
    "",
)


@pytest.mark.usefixtures("without_processes")
@pytest.mark.parametrize("seed", range(40))
def test_the_row_that_sets_the_shape_may_come_late(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = random.Random(seed)
    nulls = [NESTED_ROWS[0]] * chosen.randint(0, 9)
    lines = [*nulls, *chosen.choices(NESTED_ROWS, weights=(9, 9, 9, 1, 9, 3), k=30)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(parallel_reading, "PIECE_BYTES", 60)
    one, two = contents_or_errors(tmp_path, monkeypatch, CleaningConfig(), mix="")
    assert one == two


@pytest.mark.usefixtures("without_processes")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["corpus", "corpus.jsonl", "corpus.tsv"]),
    texts=st.tuples(st.lists(BYTES, max_size=30), st.lists(BYTES, max_size=30)),
    num_bytes=st.integers(1, 20),
    has_columns=st.booleans(),
)
def test_any_bytes_give_the_same_pairs_or_the_same_error(
    name: str, texts: tuple[list[bytes], list[bytes]], num_bytes: int, has_columns: bool, tmp_path: Path
) -> None:
    paths = [tmp_path / f"{name}.en", tmp_path / f"{name}.de"] if name == "corpus" else [tmp_path / name]
    for path, text in zip(paths, texts, strict=False):
        path.write_bytes(b"".join(text))
    fields = {"columns": "1,2"} if has_columns and name == "corpus.tsv" else {}
    [part] = find_source(config(tmp_path / name, 2, **fields)).splits["train"]
    whole = pairs_or_error(lambda: part.pairs)
    assert part.divide is not None
    pieces: list[object] = []
    for read in part.divide(num_bytes):
        piece = pairs_or_error(pickle.loads(pickle.dumps(read)))
        pieces += piece
        if piece and isinstance(piece[-1], str):
            break
    assert pieces == whole


def pairs_or_error(read: Callable[[], Iterable[object]]) -> list[object]:
    """The pairs up to the error, if there is one, and its sentence."""
    found: list[object] = []
    try:
        found.extend(read())
    except DataError as error:
        found.append(str(error))
    return found


@pytest.mark.parametrize(
    ("name", "line", "what"),
    [
        ("corpus.en", b"caf\xe9\n", r"corpus\.en, line 302: byte 4 \(0xe9\) is not UTF-8"),
        ("corpus.de", b"one more\n", r"corpus\.de has 403"),
        ("corpus.jsonl", b'{"en": "x"\n', r"corpus\.jsonl, line 304: this is not a complete JSON value"),
        (
            "corpus.jsonl",
            b'{"translation": {"en": "\\ud800", "de": "x"}}\n',
            r"corpus\.jsonl, line 304: .*half a character",
        ),
        ("corpus.tsv", b"one cell\n", r"corpus\.tsv, line 303: found 1 cell, but .* 3 columns"),
    ],
)
def test_an_error_has_the_same_line_and_sentence(name: str, line: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / name
    given = tmp_path / "corpus" if path.suffix in (".en", ".de") else path
    write(given, many_rows(400))
    lines = path.read_bytes().splitlines(keepends=True)
    at = len(lines) if b"one more" in line else len(lines) * 3 // 4
    errors = []
    path.write_bytes(b"".join([*lines[:at], line, *lines[at:]]))
    for workers in (1, 2):
        with pytest.raises(DataError, match=what) as error:
            load_corpus(config(given, workers))
        errors.append(str(error.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("how", ["small", "limited", "csv", "packed", "built-in"])
def test_what_is_small_or_cannot_be_divided_is_read_by_this_process(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> object:
        raise AssertionError

    monkeypatch.setattr(parallel_reading, "map_in_order", refuse)
    path: object = tmp_path / "corpus.tsv"
    fields: dict[str, object] = {}
    write(tmp_path / "corpus.tsv", [(f"row {i}", f"Zeile {i}") for i in range(300)])
    text = (tmp_path / "corpus.tsv").read_bytes()
    with pytest.raises(AssertionError):
        load_corpus(config(path, 2))
    if how == "small":
        monkeypatch.setattr(parallel_reading, "SMALLEST_BYTES", len(text) + 1)
    elif how == "limited":
        fields = {"num_train_pairs": 200}
    elif how == "csv":
        path = tmp_path / "corpus.csv"
        path.write_bytes(text.replace(b"\t", b","))
    elif how == "packed":
        path = tmp_path / "corpus.tsv.gz"
        path.write_bytes(gzip.compress(text))
    else:
        path, fields = "builtin:primer", {"num_train_pairs": 200}
    assert len(load_corpus(config(path, 2, **fields)).train) > 100


def test_the_number_of_processes_does_not_name_the_cached_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "corpus.tsv", many_rows(200))
    first = load_corpus(config(tmp_path / "corpus.tsv", 2))
    monkeypatch.setattr(corpus_module, "_read", None)
    assert content(load_corpus(config(tmp_path / "corpus.tsv", 1))) == content(first)


@pytest.mark.usefixtures("without_processes")
def test_progress_counts_the_same_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(display, "_are_shown", True)
    monkeypatch.setattr(display, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(display, "terminal_width", lambda: None)
    write(tmp_path / "corpus", many_rows(400))
    num_pairs = sum(bool(src.strip() and tgt.strip()) for src, tgt in many_rows(400))
    for workers in (1, 2):
        monkeypatch.setenv("MT_CACHE", str(tmp_path / f"cache of {workers}"))
        caplog.clear()
        with caplog.at_level("INFO"):
            load_corpus(config(tmp_path / "corpus", workers))
        lines = [line for line in caplog.messages if line.startswith("reading: ")]
        # Now and then, and at the end.
        assert len(lines) > 10
        assert lines[-1].startswith(f"reading: {num_pairs} pairs in ")
