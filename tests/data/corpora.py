"""Corpora for tests: the same pairs in every kind of file that is read, and a config that names them."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

from mt.config.data import DataConfig

Pairs = list[tuple[str, str]]
Files = dict[str, str | bytes]

TABLES = ("jsonl", "nested jsonl", "json", "jsonl called json", "csv", "tsv", "parquet", "nested parquet")
KINDS = (*TABLES, "parallel text")


def data_config(path: object, **fields: object) -> DataConfig:
    return DataConfig.model_validate({"path": str(path), "src": "en", "tgt": "de", **fields})


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def jsonl(rows: Iterable[object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def parquet(rows: list[Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def parallel(stem: str, pairs: Pairs, names: tuple[str, str] = ("en", "de")) -> Files:
    sides = zip(*pairs, strict=True) if pairs else ((), ())
    return {
        f"{stem}.{name}": "".join(f"{text}\n" for text in side)
        for name, side in zip(names, sides, strict=True)
    }


def quoted(rows: Iterable[tuple[object, ...]], delimiter: str = ",") -> str:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter).writerows(rows)
    return text.getvalue()


def corpus(kind: str, stem: str, pairs: Pairs, names: tuple[str, str] = ("en", "de")) -> Files:
    """The files of one split, beside whose columns of these names others may be."""
    src, tgt = names
    rows = [{"id": 7, tgt: target, src: source} for source, target in pairs]
    nested = [{"id": "7", "translation": {tgt: target, src: source, "fr": "x"}} for source, target in pairs]
    match kind:
        case "jsonl":
            return {f"{stem}.jsonl": jsonl(rows)}
        case "nested jsonl":
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in nested]
            return {f"{stem}.jsonl": "".join(lines)}
        case "json":
            return {f"{stem}.json": json.dumps(rows, indent=1)}
        case "jsonl called json":
            return {f"{stem}.json": jsonl(rows)}
        case "csv":
            return {f"{stem}.csv": quoted([("id", tgt, src), *((7, t, s) for s, t in pairs)])}
        case "tsv":
            return {f"{stem}.tsv": "".join(f"{t}\t{s}\n" for s, t in [(src, tgt), *pairs])}
        case "parquet" | "nested parquet":
            return {f"{stem}.parquet": parquet(rows if kind == "parquet" else nested)}
    return parallel(stem, pairs, names)


def pairs_of(rows: datasets.Dataset) -> Pairs:
    assert rows.column_names == ["src", "tgt"]
    return list(zip(rows["src"], rows["tgt"], strict=True))
