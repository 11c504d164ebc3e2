"""Each mistake in a config, and the sentence that answers it."""

import re

import pytest

from mt.config.explain import SECTIONS, kinds_of
from mt.config.load import load_config
from mt.errors import ConfigError
from tests.config.conftest import DATA, SMALLEST, Write, complaint

FIELDS = [(section, key) for section, fields in SECTIONS.items() for key in fields]


# What is appended to the smallest config; the line, the key, and what the message says about it.
MISTAKES = [
    ("model:\n  num_head: 4\n", 8, "'model.num_head'", "Did you mean model.num_heads?"),
    ("num_heads: 4\n", 7, "'num_heads'", "Did you mean model.num_heads?"),
    ("modle:\n  d_model: 4\n", 7, "'modle'", "Did you mean model?"),
    ("model.d_model: 4\n", 7, "'model.d_model'", "Write 'model:' and beneath it"),
    ("checkpoint:\n  zzz: 1\n", 8, "'checkpoint.zzz'", "The keys of checkpoint are"),
    ("zzz: 1\n", 7, "'zzz'", "The sections are data, cleaning, as_written, tokenizer"),
    ("  seed: '3'\n", 7, "training.seed", "below 1000000000000000000, not '3'"),
    ("model:\n  d_ff: 6e1\n", 8, "model.d_ff", "of at least 1, not 6e1."),
    ("model:\n  d_model:\n", 8, "model.d_model", "but it is empty"),
    ("model:\n  bias: [1,\n    2]\n", 8, "model.bias", "not a list"),
    ("model:\n  dropout: 1.5\n", 8, "model.dropout", "of at least 0 and below 1, not 1.5"),
    (
        "model:\n  activation: gleu\n",
        8,
        "model.activation",
        "relu, gelu, swish, not gleu. Did you mean gelu?",
    ),
    ("model:\n  bias: yes\n", 8, "model.bias", "must be true or false, not yes"),
    ("  seed: 1234567890123456789\n", 7, "training.seed", "and below"),
    ("  device: 1\n", 7, "training.device", "one of auto, cpu"),
    ("tokenizer:\n  path: true\n", 8, "tokenizer.path", "Put it in quotes: 'true'"),
    ("model: 3\n", 7, "'model'", "must be a section"),
    ("model:\n  d_model: 200\n  num_heads: 7\n", 9, "model.d_model (200)", "multiple of model.num_heads (7)"),
    # What others call it, and what it is here.
    ("  lr: 1\n", 7, "'training.lr'", "schedule.learning_rate"),
    ("  batch_size: 1\n", 7, "'training.batch_size'", "training.batch_tokens"),
    ("model:\n  Hidden-Size: 1\n", 8, "'model.Hidden-Size'", "model.d_model"),
    ("model:\n  layers: 1\n", 8, "'model.layers'", "model.num_encoder_layers and model.num_decoder_layers"),
    ("model:\n  N: 1\n", 8, "'model.N'", "mean model.num_encoder_layers and model.num_decoder_layers?"),
    ("model:\n  h: 1\n", 8, "'model.h'", "mean model.num_heads?"),
    ("model:\n  hidden_dim: 1\n", 8, "'model.hidden_dim'", "mean model.d_model?"),
    ("model:\n  embed_dim: 1\n", 8, "'model.embed_dim'", "mean model.d_model?"),
    # However it is written; of the section if it has such an option; and by the beginning of a name.
    ("--lr: 1\n", 7, "'--lr'", "mean schedule.learning_rate?"),
    ("model:\n  D_MODELS: 4\n", 8, "'model.D_MODELS'", "mean model.d_model?"),
    ("validation:\n  every_step: 1\n", 8, "'validation.every_step'", "mean validation.every_steps?"),
    ("  adam: 1\n", 7, "'training.adam'", "mean training.adam_beta1?"),
    ("  seed_for_all_of_it: 1\n", 7, "'training.seed_for_all_of_it'", "mean training.seed?"),
    ("  s: 1\n", 7, "'training.s'", "The keys of training are"),
    ("cleaning:\n  invisible: no\n", 8, "cleaning.invisible", "must be keep or drop, not no."),
    ("temperature: 1\n", 7, "'temperature'", "mt translate --beam"),
    ("tokenizer:\n  tokenizer_file: a\n", 8, "'tokenizer.tokenizer_file'", "mean tokenizer.path?"),
    ("optimizer:\n  x: 1\n", 7, "'optimizer'", "training"),
    ("validation:\n  beam_size: 1\n", 8, "'validation.beam_size'", "mt translate --beam"),
    ("  output_dir: 1\n", 7, "'training.output_dir'", "--run PATH"),
    ("  resume: 1\n", 7, "'training.resume'", "resumes automatically"),
]


@pytest.mark.parametrize(("appended", "line", "key", "what"), MISTAKES)
def test_a_mistake_is_answered_with_line_key_and_remedy(
    appended: str, line: int, key: str, what: str, write_config: Write
) -> None:
    answer = complaint(write_config(SMALLEST + appended))
    assert answer.startswith(f"configs/my.yaml, line {line}: ")
    assert key in answer
    assert what in answer
    assert "\n" not in answer


def test_all_mistakes_are_listed_in_the_order_of_the_file(write_config: Write) -> None:
    answer = complaint(
        write_config(SMALLEST + "zzz: 1\nmodel:\n  bias: 1\n  nope: 1\n  d_model: x\n"),
        "data.max_length=x",
        "data.nope=1",
    )
    assert [line.partition(": ")[0] for line in answer.split("\n")] == [
        *(f"configs/my.yaml, line {line}" for line in (7, 9, 10, 11)),
        "--set data.max_length=x",
        "--set data.nope=1",
    ]


@pytest.mark.parametrize(
    ("text", "where", "missing"),
    [
        ("data:\n  src: en\ntraining:\n  max_steps: 1\n", "configs/my.yaml, line 1", ["path", "tgt"]),
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


def test_a_check_of_options_that_are_not_written_names_the_file(write_config: Write) -> None:
    assert complaint(write_config(DATA)).startswith("configs/my.yaml: nothing ends this run: set training.")


# Of every kind that a field can be of, and of none.
VALUES = ["1", "-1", "1.5", "1e400", ".nan", "abc", "''", "null", "true", "{a: 1}", "9" * 20, '"\\ud800"']
OF_PYDANTIC = re.compile(r"Input should|Extra inputs|Field required|Value error|pydantic|NoneType|\bint\b")


def test_no_value_is_answered_in_the_words_of_a_library(write_config: Write) -> None:
    path = write_config(SMALLEST)
    for section, key in FIELDS:
        answers = []
        for value in VALUES:
            try:
                load_config(path, [f"{section}.{key}={value}"])
            except ConfigError as error:
                answers.append(str(error))
        takes_any_text = str in kinds_of(SECTIONS[section][key])
        assert answers or takes_any_text, f"{section}.{key}"
        assert [answer for answer in answers if OF_PYDANTIC.search(answer)] == []
        assert all(f"{section}.{key}" in answer for answer in answers)
