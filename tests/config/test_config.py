"""The models' own checks, without any file."""

from typing import Any

import pytest
from pydantic import ValidationError

from mt.config.config import Config
from mt.config.explain import kinds_of
from mt.config.section import Section
from mt.config.sources import SourceConfig, sources_of_mix

SECTIONS: dict[str, type[Section]] = {
    name: section
    for name, field in Config.model_fields.items()
    if isinstance(section := field.annotation, type) and issubclass(section, Section)
}
FIELDS = [(name, key) for name, section in SECTIONS.items() for key in section.model_fields]
NUMBERS = [
    (name, key) for name, key in FIELDS if {int, float} & set(kinds_of(SECTIONS[name].model_fields[key]))
]


def config(**sections: dict[str, Any]) -> Config:
    """The smallest config, changed by ``sections``."""
    values: dict[str, dict[str, Any]] = {
        "data": {"path": "builtin:primer", "src": "en", "tgt": "de"},
        "training": {"max_steps": 1},
    }
    for name, keys in sections.items():
        values[name] = values.get(name, {}) | keys
    return Config.model_validate(values)


def test_only_the_corpus_and_its_languages_have_no_default() -> None:
    required = [(name, key) for name, key in FIELDS if SECTIONS[name].model_fields[key].is_required()]
    assert required == [("data", "path"), ("data", "src"), ("data", "tgt")]


def test_every_field_is_documented_in_a_sentence() -> None:
    for section, key in FIELDS:
        description = SECTIONS[section].model_fields[key].description
        assert description, f"{section}.{key}"
        assert description.endswith("."), f"{section}.{key}"


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("data", "path", ""),
        ("data", "src", ""),
        ("data", "tgt", True),
        ("tokenizer", "path", ""),
        ("model", "d_model", "256"),
        ("model", "d_model", 256.0),
        ("model", "activation", "tanh"),
        ("schedule", "learning_rate", float("nan")),
        ("training", "weight_decay", float("inf")),
    ],
)
def test_values_of_another_type_are_refused(section: str, key: str, value: object) -> None:
    with pytest.raises(ValidationError, match=f"1 validation error for Config\n{section}.{key}\n"):
        config(**{section: {key: value}})


# The least and the most value of each option that has bounds, and values just beyond them.
COUNT, SHARE = ([1], [0]), ([0.0, 0.99], [-0.01, 1.0])
ANY = ([0.0, 9e34], [-0.01, 1e35])
BOUNDS: dict[str, tuple[list[float], list[float]]] = {
    "data.held_out_fraction": ([1e-9, 0.49], [0.0, 0.5]),
    "data.max_length": ([4], [3]),
    "data.hub_timeout_seconds": ([1e-9, 9e8], [0.0, 1e9]),
    "cleaning.max_length_ratio": ([1.01], [1.0]),
    "tokenizer.max_size": ([5], [4]),
    "model.d_model": ([4], [1]),
    "model.num_encoder_layers": ([1, 1000], [0, 1001]),
    "model.num_decoder_layers": ([1, 1000], [0, 1001]),
    "model.initial_std": ([1e-9], [0.0]),
    "schedule.learning_rate": ([1e-9, 9e34], [0.0, 1e35]),
    "schedule.factor": ([1e-9, 9e34], [0.0, 1e35]),
    "schedule.warmup_steps": ([0], [-1]),
    "schedule.total_steps": ([1], []),  # Compared with the warm-up.
    "training.seed": ([0, 10**18 - 1], [-1, 10**18]),
    "training.bpe_dropout": ([0.0], [-0.01, 1.0]),
    "training.keep_share": ([0.0], [-0.01, 1.0]),
    "training.adam_epsilon": ([1e-30], [9e-31]),
    "training.clip_norm": ([1e-9], [0.0]),
    "training.ema_decay": ([1e-9, 0.99], [0.0, 1.0]),
    "training.max_minutes": ([1e-9, 9e8], [0.0, 1e9]),
    "validation.num_samples": ([0], [-1]),
}
BOUNDS |= dict.fromkeys(["training.guided_alignment", "training.r_drop", "training.weight_decay"], ANY)
for share in ("dropout", "attention_dropout", "activation_dropout", "word_dropout"):
    BOUNDS[f"model.{share}"] = SHARE
for share in ("upper", "title", "no_final_punctuation", "typos", "joined", "noise"):
    BOUNDS[f"as_written.{share}"] = SHARE
for share in ("label_smoothing", "unknown_share", "adam_beta1", "adam_beta2"):
    BOUNDS[f"training.{share}"] = SHARE


@pytest.mark.parametrize(("section", "key"), NUMBERS)
def test_numbers_are_accepted_up_to_their_bounds(section: str, key: str) -> None:
    tokenizer = {"tokenizer": {"kind": "bpe"}} if section == "as_written" else {}
    accepted, refused = BOUNDS.get(f"{section}.{key}", COUNT)
    for value in accepted:
        assert getattr(getattr(config(**{section: {key: value}}, **tokenizer), section), key) == value
    for value in refused:
        with pytest.raises(ValidationError, match=f"1 validation error for Config\n{section}.{key}\n"):
            config(**{section: {key: value}})


def test_a_whole_number_is_a_number() -> None:
    built = config(schedule={"learning_rate": 1})
    assert built.schedule.learning_rate == 1.0
    assert isinstance(built.schedule.learning_rate, float)


# Changes that do not fit together, and the options and the remedy in the message.
CONTRADICTIONS: list[tuple[dict[str, dict[str, Any]], str]] = [
    (
        {"model": {"d_model": 12, "num_heads": 5}},
        r"d_model \(12\).*num_heads \(5\).*from 1, 2, 3, 4, 6, 12\.",
    ),
    ({"model": {"d_model": 128, "num_heads": 3}}, r"from 1, 2, 4, 8, 16, 32, 64\."),
    ({"model": {"d_model": 9, "num_heads": 3}}, r"model\.d_model \(9\) must be even"),
    ({"schedule": {"kind": "cosine"}}, r"schedule\.total_steps.*schedule\.warmup_steps"),
    ({"schedule": {"kind": "cosine", "warmup_steps": 9, "total_steps": 9}}, r"warmup_steps \(9\)"),
    (
        {"schedule": {"kind": "cosine", "warmup_steps": 1, "total_steps": 10}, "training": {"max_steps": 11}},
        r"training\.max_steps is above schedule\.total_steps",
    ),
    (
        {
            "schedule": {"kind": "cosine", "warmup_steps": 9, "total_steps": "auto"},
            "training": {"max_minutes": 1, "max_steps": None},
        },
        r"needs a schedule\.warmup_steps of at least 10, whose steps are timed",
    ),
    (
        {
            "schedule": {"kind": "cosine", "warmup_steps": 10, "total_steps": "auto"},
            "training": {"max_epochs": 1, "max_steps": None},
        },
        r"schedule\.total_steps: auto needs training\.max_minutes or training\.max_steps",
    ),
    ({"training": {"lexicon_start": True}}, r"lexicon_start needs training\.guided_alignment"),
    ({"schedule": {"kind": "noam", "warmup_steps": 0}}, r"schedule\.warmup_steps must be at least 1"),
    ({"model": {"share_embeddings": True}}, r"share_embeddings needs tokenizer\.shared: true"),
    ({"tokenizer": {"kind": "file", "shared": True}}, r"tokenizer\.kind: file needs tokenizer\.path"),
    ({"tokenizer": {"kind": "file", "path": "a.json"}}, r"set tokenizer\.shared: true"),
    ({"tokenizer": {"path": "a.json"}}, r"tokenizer\.kind: file needs .* no other kind takes it"),
    *[
        ({"tokenizer": {"kind": kind, "max_size": 260}}, rf"max_size \(260\) must be above 260 .* {kind}, ")
        for kind in ("char", "bpe", "bpe_metaspace")
    ],
    ({"tokenizer": {"kind": "imported"}}, r"mt import: name its run as init_from\.run"),
    ({"tokenizer": {"extend": True}}, r"tokenizer\.extend adds .* init_from\.run: name that run"),
    (
        {"init_from": {"run": "r", "parts": "encoder, tail"}},
        r"init_from\.parts: 'tail' is not one of encoder,",
    ),
    ({"init_from": {"parts": "encoder"}}, r"init_from\.parts needs init_from\.run"),
    ({"as_written": {"upper": 0.1}}, r"as_written\.upper is for subwords"),
    ({"as_written": {"typos": 0.1}}, r"as_written\.typos is for subwords"),
    (
        {"as_written": {"title": 0.1}, "tokenizer": {"kind": "bpe", "lowercase": True}},
        r"tokenizer\.lowercase excludes as_written\.upper and as_written\.title",
    ),
    ({"training": {"keep_share": 0.1}}, r"training\.keep_share needs training\.guided_alignment"),
    ({"training": {"bpe_dropout": 0.1}}, r"training\.bpe_dropout needs tokenizer\.kind"),
    (
        {"training": {"bpe_dropout": 0.1, "guided_alignment": 0.5}, "tokenizer": {"kind": "bpe"}},
        r"bpe_dropout and training\.guided_alignment",
    ),
    ({"training": {"max_steps": None}}, "nothing ends this run: set training.max_steps"),
    *[
        ({"data": {"columns": columns}}, r"data\.columns must be two columns")
        for columns in ("english", "a,b,c", "a,", ",", "a,a", "1,1", "")
    ],
    *[({"data": {"columns": columns}}, r"columns are counted from 1") for columns in ("0,1", "1,0")],
]
# Changes that only just fit together.
FITTING: list[dict[str, dict[str, Any]]] = [
    {"schedule": {"kind": "cosine", "warmup_steps": 9, "total_steps": 10}, "training": {"max_steps": 10}},
    {"schedule": {"kind": "noam", "warmup_steps": 1}},
    {"tokenizer": {"kind": "char", "max_size": 261}},
    {"tokenizer": {"kind": "imported"}, "data": {"path": "imported"}},
    {"tokenizer": {"kind": "imported"}, "init_from": {"run": "r", "parts": "output"}},
    {"tokenizer": {"extend": True}, "init_from": {"run": "r"}},
    {"tokenizer": {"kind": "bpe_metaspace"}, "training": {"bpe_dropout": 0.1}},
    *[{"training": {"max_steps": None, limit: 1}} for limit in ("max_epochs", "max_minutes")],
    {"training": {"max_steps": None}, "validation": {"patience": 1}},
    {"data": {"columns": "1, 2"}},
]


@pytest.mark.parametrize(("changes", "message"), CONTRADICTIONS)
def test_options_that_do_not_fit_together_are_refused(
    changes: dict[str, dict[str, Any]], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        config(**changes)


@pytest.mark.parametrize("changes", FITTING)
def test_options_that_only_just_fit_together_are_accepted(changes: dict[str, dict[str, Any]]) -> None:
    config(**changes)


def test_what_weights_compute_depends_on_their_shape_and_not_on_dropout() -> None:
    computation = config(model={"norm_first": False}, training={"guided_alignment": 0.5}).computation()
    others = {"data.max_length": 128, "tokenizer.kind": "word", "training.guided_alignment": 0.5}
    without = {"model.dropout", "model.attention_dropout", "model.activation_dropout", "model.word_dropout"}
    assert (
        computation.keys()
        == {f"{name}.{key}" for name, key in FIELDS if name == "model"} - without | others.keys()
    )
    assert computation | others | {"model.norm_first": False} == computation
    # The layer that aligns words is the last but one, and of two the last.
    layers = [config(model={"num_decoder_layers": number}).aligning_heads[0] for number in (1, 2, 3)]
    assert layers == [0, 1, 1]


@pytest.mark.parametrize(
    ("parts", "sides"),
    [
        ("encoder", "src"),
        ("src_embedding", "src"),
        ("decoder", "tgt"),
        ("tgt_embedding, output", "tgt"),
        (None, "src tgt"),
    ],
)
def test_parts_that_are_taken_over_bring_the_tokenizer_of_their_side(parts: str | None, sides: str) -> None:
    assert config(init_from={"run": "r", "parts": parts}).init_from.sides == set(sides.split())
    assert config().init_from.sides == set()


def test_the_paths_of_a_mix_may_hold_spaces_and_equals_signs() -> None:
    mix = " my corpus/a=b.jsonl   weight=1e-1 ;; x name=en-de revision=v1 tgt=german"
    assert sources_of_mix(mix, "en", "de") == {
        "mix1": SourceConfig(path="my corpus/a=b.jsonl", weight=0.1),
        "mix2": SourceConfig(path="x", name="en-de", revision="v1", columns="en,german"),
    }
