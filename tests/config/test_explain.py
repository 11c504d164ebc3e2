"""Each mistake in a config, and the sentence that answers it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mt.config.explain import SECTIONS
from mt.config.load import load_config
from mt.config.synonyms import ELSEWHERE as ELSEWHERE_NAMES
from mt.config.synonyms import MEANINGS
from mt.errors import ConfigError

Write = Callable[[str], Path]

DATA = "data:\n  path: builtin:primer\n  src: en\n  tgt: de\n"  # Lines 1 to 4,
SMALLEST = DATA + "training:\n  max_steps: 10\n"  # ... 5 and 6; what a test appends begins in line 7.
FIELDS = [(section, key) for section, fields in SECTIONS.items() for key in fields]


def complaint(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load_config(path, overrides)
    return str(raised.value)


# What is appended to the smallest config, and the line, key and remedy in the message.
MISTAKES = [
    ("model:\n  num_head: 4\n", "line 8: unknown key 'model.num_head'. Did you mean 'num_heads'?"),
    ("num_heads: 4\n", "line 7: unknown key 'num_heads'. It belongs to model: model.num_heads."),
    ("modle:\n  d_model: 4\n", "line 7: unknown key 'modle'. Did you mean 'model'?"),
    ("model.d_model: 4\n", "line 7: unknown key 'model.d_model'. Write 'model:' and beneath it"),
    ("checkpoint:\n  zzz: 1\n", "line 8: unknown key 'checkpoint.zzz'. The keys of checkpoint are"),
    ("zzz: 1\n", "line 7: unknown key 'zzz'. The sections are data, cleaning, tokenizer"),
    ("  seed: '3'\n", "line 7: training.seed must be a whole number of at least 0 and below"),
    ("model:\n  d_ff: 6e1\n", "line 8: model.d_ff must be a whole number of at least 1, not 6e1. Write 60."),
    ("model:\n  d_model:\n", "line 8: model.d_model must be a whole number of at least 2, but it is empty."),
    ("model:\n  bias: [1,\n    2]\n", "line 8: model.bias must be true or false, not a list."),
    ("model:\n  dropout: 1.5\n", "line 8: model.dropout must be a number of at least 0 and below 1, not 1.5"),
    ("model:\n  activation: gleu\n", "line 8: model.activation must be relu or gelu, not gleu. Did you mean"),
    ("model:\n  bias: yes\n", "line 8: model.bias must be true or false, not yes. Did you mean true?"),
    ("  seed: 1234567890123456789\n", "line 7: training.seed must be a whole number of at least 0 and below"),
    ("model: 3\n", "line 7: 'model' must be a section, that is, keys indented beneath it, not 3."),
    ("model:\n  d_model: 200\n  num_heads: 7\n", "line 9: model.d_model (200) must be a multiple of"),
    ("model:\n  d_ff: 1\n  d_ff: 2\n", "line 9: the key 'model.d_ff' is there already, in "),
    ("model:\n  d_ff: *x\n", "line 8: anchors and aliases (& and *) are not used here; "),
    ("model\nschedule:\n  kind: noam\n", "line 8: this is not valid YAML: could not find expected ':'"),
]  # fmt: skip


# What others call it, where somebody would write it, and what it is here.
ELSEWHERE = [
    ("training", "lr", "'schedule.learning_rate'"),
    ("training", "learning_rate", "schedule.learning_rate"),
    ("training", "batch_size", "'batch_tokens'"),
    ("data", "batch_size", "'training.batch_tokens'"),
    ("training", "epochs", "'max_epochs'"),
    ("model", "vocab_size", "'tokenizer.max_size'"),
    ("tokenizer", "vocab_size", "'max_size'"),
    ("model", "hidden_size", "'d_model'"),
    ("model", "Embedding-Dim", "'d_model'"),
    ("training", "dropout", "model.dropout"),
    ("model", "layers", "'num_encoder_layers' and 'num_decoder_layers'"),
    ("training", "fp16", "'precision'"),
    ("training", "grad_clip", "'clip_norm'"),
    ("training", "gradient_accumulation_steps", "'num_micro_batches'"),
    ("training", "warmup", "'schedule.warmup_steps'"),
    ("training", "early_stopping", "'validation.patience'"),
    ("model", "max_len", "'data.max_length'"),
    ("validation", "beam_size", "mt translate --beam 5"),
    ("training", "output_dir", "--run PATH"),
    ("training", "resume", "resumes"),
]


@pytest.mark.parametrize(("section", "key", "meant"), ELSEWHERE)
def test_what_others_call_an_option_is_understood(
    section: str, key: str, meant: str, write_config: Write
) -> None:
    answer = complaint(write_config(SMALLEST), f"{section}.{key}=1")
    assert f"unknown key '{section}.{key}'." in answer
    assert meant in answer


@pytest.mark.parametrize("name", ["optimizer", "train", "val", "transformer", "vocab"])
def test_what_others_call_a_section_is_understood(name: str, write_config: Write) -> None:
    answer = complaint(write_config(SMALLEST + f"{name}:\n  x: 1\n"))
    assert re.search(rf"unknown key '{name}'\. Did you mean '({'|'.join(SECTIONS)})'\?", answer)


def test_every_meaning_is_an_option_and_no_option_means_another() -> None:
    options = {f"{section}.{key}" for section, key in FIELDS} | set(SECTIONS)
    for name, meaning in MEANINGS.items():
        assert set(meaning.split(" and ")) <= options, name
    assert not (set(MEANINGS) | set(ELSEWHERE_NAMES)) & {key for _, key in FIELDS}


@pytest.mark.parametrize(("appended", "message"), MISTAKES)
def test_a_mistake_is_answered_with_its_place_and_what_is_accepted(
    appended: str, message: str, write_config: Write
) -> None:
    answer = complaint(write_config(SMALLEST + appended)).removeprefix("configs/my.yaml, ")
    assert answer.startswith(message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("  path: ''\n", "data.path must be text that is not empty, not ''."),
        ("  path:\n", "data.path must be text that is not empty, but it is empty."),
        ("  path: 1e5\n", "data.path must be text that is not empty, not 1e5. Put it in quotes: '1e5'."),
        ("  path: true\n", "data.path must be text that is not empty, not true. Put it in quotes: 'true'."),
        (
            "  path: x\n  revision: 12345\n",
            "data.revision must be text or null, not 12345. Put it in quotes: '12345'.",
        ),
    ],
)
def test_text_that_reads_as_something_else(line: str, message: str, write_config: Write) -> None:
    answer = complaint(write_config(SMALLEST.replace("  path: builtin:primer\n", line)))
    assert answer == f"configs/my.yaml, line {1 + line.count(chr(10))}: {message}"


def test_every_field_refuses_a_list_by_file_line_and_name(write_config: Write) -> None:
    for section, key in FIELDS:
        values: dict[str, dict[str, Any]] = {
            "data": {"path": "x", "src": "en", "tgt": "de"},
            "training": {"max_steps": 1},
        }
        values.setdefault(section, {})[key] = "[1]"
        lines: list[str] = []
        for name, keys in values.items():
            lines += [f"{name}:", *(f"  {word}: {value}" for word, value in keys.items())]
        answer = complaint(write_config("\n".join(lines)))
        assert answer.startswith(
            f"configs/my.yaml, line {lines.index(f'  {key}: [1]') + 1}: {section}.{key} must be "
        )
        assert answer.endswith(", not a list.")


def test_all_mistakes_are_listed_in_the_order_of_the_file(write_config: Write) -> None:
    answer = complaint(
        write_config(SMALLEST + "zzz: 1\nmodel:\n  bias: 1\n  nope: 1\n  d_model: x\n"),
        "data.max_length=x",
        "data.nope=1",
    )
    assert [line.partition(": ")[0] for line in answer.split("\n")] == [
        "configs/my.yaml, line 7",
        "configs/my.yaml, line 9",
        "configs/my.yaml, line 10",
        "configs/my.yaml, line 11",
        "override data.max_length=x",
        "override data.nope=1",
    ]


def test_a_flood_of_mistakes_is_cut(write_config: Write) -> None:
    answer = complaint(write_config(SMALLEST + "".join(f"zzz{i}: 1\n" for i in range(5000)))).split("\n")
    assert answer[0].startswith("configs/my.yaml, line 7: unknown key 'zzz0'.")
    assert answer[20:] == ["... and 4980 more."]


@pytest.mark.parametrize(
    ("text", "where", "missing"),
    [
        ("data:\n  src: en\ntraining:\n  max_steps: 1\n", "configs/my.yaml, line 1", ["path", "tgt"]),
        ("# none\ndata:\n", "configs/my.yaml, line 2", ["path", "src", "tgt"]),
        ("training:\n  max_steps: 1\n", "configs/my.yaml", ["path", "src", "tgt"]),
    ],
)
def test_missing_keys_are_named_and_explained(
    text: str, where: str, missing: list[str], write_config: Write
) -> None:
    assert complaint(write_config(text)).split("\n") == [
        f"{where}: data.{key} is missing, and has no default. {SECTIONS['data'][key].description}"
        for key in missing
    ]


def test_a_check_of_what_nobody_wrote_names_the_file(write_config: Write) -> None:
    assert complaint(write_config(DATA)).startswith(
        "configs/my.yaml: nothing ends this run: set training.max_steps"
    )


# Of every kind that a field can be of, and of none.
VALUES = [
    "1",
    "-1",
    "1.5",
    "1e400",
    ".nan",
    "abc",
    "''",
    "null",
    "true",
    "{a: 1}",
    "'\\0'",
    "9" * 20,
    "2020-01-01",
]
OF_PYDANTIC = re.compile(
    r"Input should|Extra inputs|Field required|Value error|pydantic|type=|NoneType|\bint\b"
)


def test_no_value_is_answered_in_the_words_of_a_library(write_config: Write) -> None:
    path = write_config(SMALLEST)
    for section, key in FIELDS:
        answers = []
        for value in [*VALUES, '"\\ud800"']:
            try:
                load_config(path, [f"{section}.{key}={value}"])
            except ConfigError as error:
                answers.append(str(error))
        assert answers, f"{section}.{key}"
        assert [answer for answer in answers if OF_PYDANTIC.search(answer)] == []
        assert all(f"{section}.{key}" in answer for answer in answers)
