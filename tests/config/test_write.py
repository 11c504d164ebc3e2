"""A config as YAML and back, and what differs between two."""

from pathlib import Path
from typing import Any

from mt.config.config import Config
from mt.config.load import load_config, recipe_files
from mt.config.write import changed_options, config_to_yaml, differences, sources_to_yaml, with_unset_from
from tests.config.conftest import Write

BASE: dict[str, dict[str, Any]] = {
    "data": {"path": "builtin:primer", "src": "en", "tgt": "no"},
    "training": {"max_steps": 1000},
}
NASTY_WORDS = (
    "no Yes on y null ~ true 1e-4 1_000 010 0x1F 1:30 2024-01-01 .inf # = << ' \" \\ - --- ... a: "
    "&a *a !a %a @a [a] {a \x00 \x7f \x85 \u2028 \ufeff é 中文 😀 ~/corpus /data/opus ../shared/data "
    "builtin:reverse C:\\corpus"
)
NASTY_TEXTS = [
    *NASTY_WORDS.split(" "),
    *("a: b", "a #b", "- a", " a ", "a, b", "a\nb", "a\tb", "\n", "x" * 300, "Helsinki-NLP/opus_books"),
]


def with_changes(**changes: object) -> Config:
    """The base config with ``section__key=value`` changed."""
    values = {name: dict(keys) for name, keys in BASE.items()}
    for name, value in changes.items():
        section, key = name.split("__")
        values.setdefault(section, {})[key] = value
    return Config.model_validate(values)


def test_a_written_config_loads_back_equal(write_config: Write) -> None:
    configs = [load_config(recipe) for recipe in recipe_files().values()]
    configs += [
        with_changes(data__path=text, data__name=text, tokenizer__kind="char") for text in NASTY_TEXTS
    ]
    for columns in ("1,2", "010, 2", "yes,no", "a: b,- c", "\u00e4 #,\t'x"):
        source = {"path": columns, "columns": columns, "weight": 0.5}
        configs.append(with_changes(data__columns=columns, data__sources={"a": source, "B-1": source}))
    for number in (1e-30, 1e-9, 0.1, 1 / 3, 5.0, 123456789.125, 9e34):
        configs.append(with_changes(schedule__learning_rate=number))
    for whole in (0, 10**17 + 1):
        configs.append(with_changes(training__seed=whole, training__compile=whole > 0, model__bias=whole > 0))
    for config in configs:
        for comments in (True, False):
            assert load_config(write_config(config_to_yaml(config, comments=comments))) == config


def test_changed_options_alone_load_back_to_the_config(write_config: Write) -> None:
    config = with_changes(training__label_smoothing=0.1, model__dropout=0.3)
    recipe = config_to_yaml(config, comments=False, keys=changed_options(config))
    assert recipe == (
        'data:\n  path: builtin:primer\n  src: en\n  tgt: "no"\n\nmodel:\n  dropout: 0.3\n\n'
        "training:\n  max_steps: 1000\n"
    )
    assert load_config(write_config(recipe)) == config


def test_what_a_config_leaves_open_has_the_value_with_which_the_run_began() -> None:
    begun = with_changes(
        model__dropout=0.3, training__precision="bf16", training__compile=True, training__log_every_steps=7
    )
    resumed = with_unset_from(begun, with_changes(training__seed=2, training__precision="auto"))
    expected = with_changes(
        model__dropout=0.3, training__seed=2, training__precision="bf16", training__compile=True
    )
    assert resumed == expected
    given = with_changes(model__dropout=0.1, training__precision="float32")
    resumed = with_unset_from(begun, given)
    assert (resumed.model.dropout, resumed.training.precision) == (0.1, "float32")


def test_differences_name_field_and_both_values() -> None:
    assert differences(with_changes(), with_changes()) == []
    assert differences(with_changes(), with_changes(training__seed=2, data__name="a b")) == [
        'data.name: null -> "a b"',
        "training.seed: 1 -> 2",
    ]


def test_the_path_of_a_source_may_change_but_not_its_weight_or_its_languages() -> None:
    def with_source(name: str = "news", **keys: object) -> Config:
        return with_changes(data__sources={name: {"path": "org/news", "weight": 2, **keys}})

    run = with_source(revision="v1")
    assert differences(run, with_source(path="news", columns="a,b")) == []
    assert differences(run, with_source(weight=3)) == ["data.sources.news.weight: 2.0 -> 3.0"]
    assert differences(run, with_source(tgt="fr")) == ["data.sources.news.tgt: null -> fr"]
    assert differences(run, with_source("talks")) == ["data.sources: news -> talks"]
    assert differences(run, with_changes()) == ["data.sources: news -> none"]


def test_a_mix_is_the_sources_that_it_means_and_is_written_as_these(tmp_path: Path) -> None:
    mix = with_changes(data__mix="a b.csv src=english weight=2\nx")
    sources = {"mix1": {"path": "a b.csv", "columns": "english,no", "weight": 2}, "mix2": {"path": "x"}}
    same = with_changes(data__sources=sources)
    (tmp_path / "config.yaml").write_text(config_to_yaml(mix))
    assert load_config(tmp_path / "config.yaml") == same
    assert sources_to_yaml(mix).startswith('data:\n  sources:\n    mix1:\n      path: "a b.csv"\n')
    assert differences(mix, same) == []


def test_what_changes_the_mathematics_may_not_change_and_limits_and_the_device_may() -> None:
    fixed = {"model.d_ff": 2, "training.batch_tokens": 5, "data.max_length": 9, "validation.metric": "loss"}
    free = {"training.max_steps": 2000, "training.device": "cpu", "data.path": "x", "checkpoint.keep": 9}
    changes = {option.replace(".", "__"): value for option, value in (fixed | free).items()}
    lines = differences(with_changes(), with_changes(**changes))
    assert {line.partition(": ")[0] for line in lines} == set(fixed)
    # Nor is it a difference what was decided on the machine on which a run began.
    decided = with_changes(training__precision="bf16", training__compile=True)
    assert differences(decided, with_changes()) == differences(with_changes(), decided) == []
    assert differences(decided, with_changes(training__precision="mixed", training__compile=True)) == []
    assert len(differences(decided, with_changes(training__compile=False))) == 1
    # A name may be such a word, too.
    assert len(differences(with_changes(data__name="mixed"), with_changes(data__name="news"))) == 1
