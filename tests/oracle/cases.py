"""What both sides are given: a small corpus, a larger one with flaws in many formats, and the cases."""

import csv
import gzip
import json
import random
import unicodedata
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import yaml

from mt import Config

SUBJECTS = {"the dog": "der Hund", "a child": "ein Kind", "my aunt": "meine Tante", "Anna": "Anna"}
VERBS = {"sees": "sieht", "finds": "findet", "buys": "kauft", "paints": "malt"}
OBJECTS = {"a house": "ein Haus", "the car": "das Auto", "milk": "Milch", "two red apples": "zwei rote Äpfel"}
ENDINGS = {"!": "!", ".": ".", " today.": " heute."}
SPLITS = {"train": slice(160), "validation": slice(160, 172), "test": slice(172, None)}
CASES: Any = yaml.safe_load(Path(__file__).with_name("cases.yaml").read_text(encoding="utf-8"))


def overrides(text: str) -> list[str]:
    """The words of a case as ``--set`` takes them; ``#`` stands for a space within one.

    Text is left as it is, as by revisions before there was a choice.
    """
    cleaning: Any = Config.model_fields["cleaning"].annotation
    as_it_was = {"unicode_form": "none", "invisible": "keep"}
    kept = [f"cleaning.{key}={value}" for key, value in as_it_was.items() if key in cleaning.model_fields]
    return [*kept, *(word.replace("#", " ") for word in text.split())]


def tiny_pairs() -> list[tuple[str, str]]:
    """192 pairs of English and German, in an order that looks random."""
    parts = product(SUBJECTS.items(), VERBS.items(), OBJECTS.items(), ENDINGS.items())
    pairs = [
        (f"{s_en} {v_en} {o_en}{e_en}", f"{s_de} {v_de} {o_de}{e_de}")
        for (s_en, s_de), (v_en, v_de), (o_en, o_de), (e_en, e_de) in parts
    ]
    random.Random(1).shuffle(pairs)
    return pairs


def write_tiny() -> None:
    """Write the corpus, the config and what some runs need besides, into the current folder."""
    pairs = tiny_pairs()
    for split, rows in SPLITS.items():
        _write_text(Path("corpus") / split, pairs[rows])
    _write(Path("more.jsonl"), _jsonl([(en.upper(), de.upper()) for en, de in pairs[:40]]))
    vocabulary = {"<unk>": 0, "</s>": 1} | {
        word: 2 + i
        for i, word in enumerate(sorted({word for pair in pairs for word in " ".join(pair).split()}))
    }
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    _write(Path("tokenizer.json"), json.dumps(tokenizer))
    for name, text in CASES["configs"].items():
        _write(Path(f"{name}.yaml"), text)


def write_sources() -> None:
    """Write a corpus with many flaws in every format that mt reads, into the current folder."""
    pairs = tiny_pairs()
    flawed = [
        *pairs[:150], pairs[0], ("", "leer"), ("empty", "   "), ("same", "same"), ("a", "b"), ("NA", "null"),
        ("  spaces  in  ", "Lücken "), ("one", "eins " * 30), ("Привет, мир", "Hallo"), ("hello", "Привет"),
        (unicodedata.normalize("NFD", "über Äpfel"), "ﬁnden ½ Ｗ"), ("bell\x07", "Glocke"), *pairs[170:174],
        ("line\u2028break", "Zeile"), ("THE DOG, sees milk", "der hund MILCH"), ("long " * 40, "lang " * 40),
    ]  # fmt: skip
    held_out = {"validation": pairs[170:180], "test": [*pairs[180:], ("", "leer"), *pairs[:2]]}
    for split, rows in {"train": flawed, **held_out}.items():
        _write_text(Path("folder") / split, rows)
        _write(Path(f"tables/{split}.jsonl"), _jsonl(rows))
        _write_parquet(Path(f"shards/{split}-00000-of-00002.parquet"), rows[:7])
        _write_parquet(Path(f"shards/{split}-00001-of-00002.parquet"), rows[7:])
    _write_text(Path("untested/train"), flawed)
    _write_text(Path("untested/dev"), held_out["validation"])
    _write_text(Path("text"), flawed)
    _write_text(Path("packed"), flawed, ending=".gz")
    _write_text(Path("windows"), flawed, before="\ufeff", line_end="\r\n")
    for side, name in enumerate(("english.txt", "german.txt")):
        _write(Path(name), "".join(pair[side] + "\n" for pair in flawed))
    _write(Path("rows.jsonl"), _jsonl(flawed))
    _write(Path("rows.jsonl.gz"), _jsonl(flawed))
    _write(Path("named.jsonl"), _jsonl(flawed, ("english", "german")))
    nested = [{"id": i, "translation": {"en": en, "de": de}} for i, (en, de) in enumerate(flawed)]
    _write(Path("nested.jsonl"), "".join(json.dumps(row) + "\n" for row in nested))
    _write(Path("rows.json"), json.dumps([{"en": en, "de": de} for en, de in flawed]))
    _write_csv(Path("rows.csv"), [("en", "de"), *flawed], ",")
    _write_csv(Path("semicolons.csv"), [("de", "en"), *((de, en) for en, de in flawed)], ";")
    _write_csv(Path("headless.csv"), flawed, ",")
    _write_csv(Path("ragged.csv"), [("en", "de"), *flawed, ("a", "b", "c")], ",")
    _write(Path("rows.csv.gz"), Path("rows.csv").read_bytes().decode())
    for name, header in {
        "rows.tsv": "en\tde\n",
        "named.tsv": "id\tgerman\tenglish\n",
        "rows.txt": "",
    }.items():
        shown = [(str(i), de, en) if "id" in header else (en, de) for i, (en, de) in enumerate(flawed)]
        _write(Path(name), header + "".join("\t".join(row) + "\n" for row in shown))
    _write(Path("pipes.txt"), "de|en\n" + "".join(f"{de}|{en}\n" for en, de in flawed))
    _write_parquet(Path("rows.parquet"), flawed)
    Path("nested.parquet").unlink(missing_ok=True)
    pyarrow.parquet.write_table(pa.Table.from_pylist(nested), "nested.parquet")
    for number in range(3):
        piece = flawed[number * 60 : number * 60 + 60]
        _write(Path(f"part-{number}.jsonl"), _jsonl(piece))
        _write_text(Path(f"shards-of-text/{number}"), piece)
        _write(
            Path(f"deep/{number}/piece.tsv"), "".join(f"{en}\t{de}\n" for en, de in [("en", "de"), *piece])
        )
    _write(Path("alone.en"), "one side\n")
    _write_text(Path("latin1"), flawed)
    Path("latin1.de").write_bytes("Äpfel\n".encode("latin-1") * len(flawed))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def _write_text(
    stem: Path, pairs: list[tuple[str, str]], *, ending: str = "", before: str = "", line_end: str = "\n"
) -> None:
    for side, language in enumerate(("en", "de")):
        text = before + "".join(pair[side] + line_end for pair in pairs)
        _write(stem.with_name(f"{stem.name}.{language}{ending}"), text)


def _write_csv(path: Path, rows: Sequence[tuple[str, ...]], delimiter: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)


def _write_parquet(path: Path, pairs: list[tuple[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pa.Table.from_pylist([{"en": en, "de": de} for en, de in pairs]), path)


def _jsonl(pairs: list[tuple[str, str]], names: tuple[str, str] = ("en", "de")) -> str:
    return "".join(json.dumps(dict(zip(names, pair, strict=True))) + "\n" for pair in pairs)
