"""What both sides are given: a small corpus, configs of tiny runs, corpora in many formats, and commands."""

import csv
import gzip
import json
import random
import unicodedata
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

SUBJECTS = {"the dog": "der Hund", "a child": "ein Kind", "my aunt": "meine Tante", "Anna": "Anna"}
VERBS = {"sees": "sieht", "finds": "findet", "buys": "kauft", "paints": "malt"}
OBJECTS = {"a house": "ein Haus", "the car": "das Auto", "milk": "Milch", "two red apples": "zwei rote Äpfel"}
ENDINGS = {"!": "!", ".": ".", " today.": " heute."}
SPLITS = {"train": slice(160), "validation": slice(160, 172), "test": slice(172, None)}
TINY = """\
data: {path: corpus, src: en, tgt: de, max_length: 16}
tokenizer: {min_frequency: 1}
model: {d_model: 16, num_heads: 2, d_ff: 32, num_encoder_layers: 1, num_decoder_layers: 1, dropout: 0.2}
schedule: {learning_rate: 0.01, warmup_steps: 5}
training: {device: cpu, max_steps: 30, batch_tokens: 150, log_every_steps: 7}
validation: {every_steps: 7, num_samples: 1, batch_sentences: 8}
checkpoint: {every_steps: 10, keep: 2}
"""
PRIMER = """\
data: {path: "builtin:primer", src: en, tgt: de, num_train_pairs: 20000, max_length: 32}
model: {d_model: 64, num_heads: 4, d_ff: 128, num_encoder_layers: 2, num_decoder_layers: 2}
schedule: {learning_rate: 0.004, warmup_steps: 50}
training: {device: cpu, max_steps: 300, batch_tokens: 2048, guided_alignment: 0.1}
validation: {every_steps: 1000, metric: loss, num_samples: 1}
"""

# Overrides of TINY by the name of the run.
RUNS = {
    "word": "",
    "bpe": "tokenizer.kind=bpe tokenizer.max_size=400 tokenizer.shared=true model.share_embeddings=true",
    "bpe_metaspace": "tokenizer.kind=bpe_metaspace tokenizer.max_size=300",
    "char": "tokenizer.kind=char tokenizer.max_size=300 data.max_length=60 training.batch_tokens=900",
    "file": "tokenizer.kind=file tokenizer.path=tokenizer.json tokenizer.shared=true",
    "shared": "tokenizer.shared=true tokenizer.lowercase=true",
    "post-norm": "model.norm_first=false schedule.kind=noam schedule.factor=2",
    "untied": "model.tie_output=false model.num_encoder_layers=2 model.num_decoder_layers=2",
    "r-drop": "training.r_drop=3",
    "muon": "training.muon=true training.weight_decay=0.01",
    "ema": "training.ema_decay=0.9 validation.metric=loss",
    "guided": "training.guided_alignment=0.2 training.unknown_share=0.3",
    "bpe-dropout": "tokenizer.kind=bpe tokenizer.max_size=400 training.bpe_dropout=0.2",
    "micro-batches": "training.num_micro_batches=3 training.batch_tokens=60",
    "mix": "data.mix=more.jsonl#weight=1.5;corpus/test#weight=0.5",
    "bf16": "training.precision=bf16",
    "bf16 r-drop": "training.precision=bf16 training.r_drop=2 training.num_micro_batches=3",
    "no smoothing": "training.label_smoothing=0 training.adam_beta2=0.9",
    "all dropouts": "model.attention_dropout=0.1 model.activation_dropout=0.1 model.word_dropout=0.1",
    "cosine": "schedule.kind=cosine schedule.total_steps=40 validation.metric=chrf",
    "constant": "schedule.kind=constant schedule.warmup_steps=0 training.clip_norm=null model.dropout=0",
    "gelu": "model.activation=gelu model.bias=false model.initial_std=0.02 training.seed=7",
    "guided ema": "training.guided_alignment=0.1 training.ema_decay=0.8 training.num_micro_batches=3",
    "muon bf16": "training.muon=true training.precision=bf16 model.norm_first=false training.ema_decay=0.9",
}
# The same with two processes.
PROCESS_RUNS = {
    "word": "training.num_micro_batches=2 training.batch_tokens=60",
    "guided ema": "training.num_micro_batches=3 training.guided_alignment=0.1 training.ema_decay=0.9",
}

# What data.path and other options are, by the name of the source.
SOURCES = {
    "folder": "data.path=folder",
    "folder, other direction": "data.path=folder data.src=de data.tgt=en",
    "folder of tables": "data.path=tables",
    "folder of shards": "data.path=shards",
    "folder without test": "data.path=untested data.held_out_fraction=0.1",
    "parallel text": "data.path=text",
    "parallel text, packed": "data.path=packed",
    "parallel text, carved": "data.path=text data.held_out_fraction=0.2",
    "parallel text, first 50": "data.path=text data.num_train_pairs=50",
    "marks and carriage returns": "data.path=windows",
    "two files": "data.path=english.txt,german.txt",
    "jsonl": "data.path=rows.jsonl",
    "jsonl, nested": "data.path=nested.jsonl",
    "jsonl, packed": "data.path=rows.jsonl.gz",
    "jsonl, other columns": "data.path=named.jsonl data.columns=english,german",
    "json": "data.path=rows.json",
    "csv": "data.path=rows.csv",
    "csv, semicolons": "data.path=semicolons.csv",
    "csv, packed": "data.path=rows.csv.gz",
    "csv, no header": "data.path=headless.csv data.columns=1,2",
    "tsv": "data.path=rows.tsv",
    "tsv, other columns": "data.path=named.tsv data.columns=english,german",
    "txt with tabs": "data.path=rows.txt data.delimiter=tab data.columns=1,2",
    "txt with pipes": "data.path=pipes.txt data.delimiter=pipe",
    "parquet": "data.path=rows.parquet",
    "parquet, nested": "data.path=nested.parquet",
    "pattern": "data.path=part-*.jsonl",
    "pattern, both languages": "data.path=shards-of-text/*.{en,de}",
    "pattern, any depth": "data.path=**/piece.tsv",
    "mix": "data.path=folder data.mix=rows.csv#weight=2.5;named.tsv#weight=0.5#columns=english,german",
    "mix, first 20": "data.path=text data.mix=rows.parquet#num_train_pairs=20",
    "NFC": "cleaning.unicode_form=NFC",
    "NFKC": "cleaning.unicode_form=NFKC cleaning.remove_duplicates=true",
    "at least 5 characters": "cleaning.min_characters=5",
    "at most 40 characters": "cleaning.max_characters=40",
    "ratio": "cleaning.max_length_ratio=2",
    "control characters": "cleaning.remove_control_characters=true",
    "Latin source": "cleaning.src_script=Latin",
    "Cyrillic target": "cleaning.tgt_script=Cyrillic",
    "identical": "cleaning.remove_identical=true",
    "duplicates": "cleaning.remove_duplicates=true",
    "leaks": "data.path=folder cleaning.remove_leaks=true",
    "all cleaning": "data.path=folder data.mix=rows.csv cleaning.remove_leaks=true "
    "cleaning.remove_duplicates=true cleaning.remove_identical=true cleaning.max_length_ratio=3 "
    "cleaning.remove_control_characters=true cleaning.src_script=Latin cleaning.unicode_form=NFKC",
    "refused: one side": "data.path=alone",
    "refused: ragged": "data.path=ragged.csv",
    "refused: no such column": "data.path=named.jsonl",
    "refused: not UTF-8": "data.path=latin1",
    "refused: nothing there": "data.path=nowhere/at/all",
}
# Built-in corpora, with the options that matter to them.
BUILTIN = {
    "primer 40,000": "data.path=builtin:primer",
    "primer 150,000": "data.path=builtin:primer data.num_train_pairs=150000",
    "primer, German to English": "data.path=builtin:primer data.src=de data.tgt=en",
    "reverse": "data.path=builtin:reverse",
    "reverse-characters": "data.path=builtin:reverse-characters",
}
# Runs whose batches are listed, with the config that they override.
ORDERS = {
    name: (TINY, RUNS[name]) for name in ("word", "bpe-dropout", "guided", "micro-batches", "mix", "char")
}
ORDERS |= {
    f"primer, {kind}": (
        PRIMER,
        f"data.num_train_pairs=3000 training.guided_alignment=0 tokenizer.kind={kind}",
    )
    for kind in ("word", "bpe", "bpe_metaspace", "char")
}

TINY_RUN = "--run runs/tiny"
COMMANDS = {
    "config": "config schedule",
    "init": "init --data corpus --src en --tgt de --target-tokens 20000 --output made.yaml",
    "check": "check --config tiny.yaml",
    "train": "train --config tiny.yaml --set training.max_steps=20",
    "train, resumed": "train --config tiny.yaml",
    "train, finished": "train --config tiny.yaml",
    "train, changed": "train --config tiny.yaml --set model.d_model=32",
    "train, other run": "train --config tiny.yaml --set training.seed=2 --run runs/other",
    "translate": f"translate {TINY_RUN} --file corpus/test.en",
    "translate, n-best": f"translate {TINY_RUN} --beam 3 --n-best 2 --file corpus/test.en",
    "evaluate": f"evaluate {TINY_RUN} --split test --worst 2 --json scores.json",
    "compare": "compare runs/tiny runs/other",
    "score": f"score {TINY_RUN} corpus/test.en corpus/test.de",
    "average": f"average {TINY_RUN} --last 2",
    "attention": f"attention {TINY_RUN} --out attention.html sees",
    "runs": "runs",
    "show": "show runs/tiny",
    "report": f"report {TINY_RUN} --out report.html",
    "export": f"export exported --to ctranslate2 {TINY_RUN}",
    "wrong key": "train --config tiny.yaml --set model.num_head=2",
    "wrong value": "train --config tiny.yaml --set model.dropout=2 --run runs/wrong",
    "wrong path": "train --config tiny.yaml --set data.path=corpse --run runs/wrong",
    "wrong column": "train --config tiny.yaml --set data.path=more.jsonl --set data.src=fr --run runs/wrong",
    "no run": "translate --run runs/nothing word",
    "wrong option": "translate --beams 3 word",
}


def overrides(text: str) -> list[str]:
    """The words of a case as ``--set`` takes them; ``#`` stands for a space within one."""
    return [word.replace("#", " ") for word in text.split()]


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
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    _write(Path("tokenizer.json"), json.dumps(tokenizer))
    _write(Path("tiny.yaml"), TINY)
    _write(Path("primer.yaml"), PRIMER)


def write_sources() -> None:
    """Write a corpus with many flaws in every format that mt reads, into the current folder."""
    pairs = tiny_pairs()
    flawed = pairs[:150] + [
        pairs[0], ("", "leer"), ("empty", "   "), ("same", "same"), ("a", "b"), ("  spaces  in  ", "Lücken "),
        ("one", "eins " * 30), ("Привет, мир", "Hallo"), ("hello", "Привет, мир"), ("bell\x07", "Glocke"),
        (unicodedata.normalize("NFD", "über Äpfel"), "ﬁnden ½ Ｗ"), ("NA", "null"), ("line\u2028break", "Zeile"),
        *pairs[170:174], ("THE DOG, sees milk", "der hund sieht MILCH"), ("long " * 40, "lang " * 40),
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


def _write_csv(path: Path, rows: list[tuple[str, ...]], delimiter: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)


def _write_parquet(path: Path, pairs: list[tuple[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pa.Table.from_pylist([{"en": en, "de": de} for en, de in pairs]), path)


def _jsonl(pairs: list[tuple[str, str]], names: tuple[str, str] = ("en", "de")) -> str:
    return "".join(json.dumps(dict(zip(names, pair, strict=True))) + "\n" for pair in pairs)
