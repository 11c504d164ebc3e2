"""Files and overrides: what loads, and what each mistake is answered with."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mt.config.config import Config
from mt.config.load import load_config
from mt.errors import ConfigError

Write = Callable[[str], Path]

SMALLEST = "data:\n  path: builtin:primer\n  src: en\n  tgt: de\ntraining:\n  max_steps: 10\n"


def complaint(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load_config(path, overrides)
    return str(raised.value)


def test_the_smallest_config_leaves_the_rest_to_the_defaults(write_config: Write) -> None:
    config = load_config(write_config(SMALLEST))
    data = {"path": "builtin:primer", "src": "en", "tgt": "de"}
    assert config == Config.model_validate({"data": data, "training": {"max_steps": 10}})


def test_a_section_with_nothing_beneath_it_is_left_to_its_defaults(write_config: Write) -> None:
    smallest = load_config(write_config(SMALLEST))
    assert load_config(write_config(SMALLEST + "model:\nschedule: null\ntokenizer: {}\n")) == smallest


@pytest.mark.parametrize("code", ["no", "on", "yes", "y", "off"])
def test_languages_are_text(code: str, write_config: Write) -> None:
    config = load_config(write_config(SMALLEST.replace("src: en", f"src: {code}")), [f"data.tgt={code}"])
    assert (config.data.src, config.data.tgt) == (code, code)


def test_numbers_as_people_write_them(write_config: Write) -> None:
    training = "  adam_epsilon: 1e-9\n  max_target_tokens: 2_000_000\n"
    schedule = "schedule:\n  learning_rate: 5e-5\n  factor: 2\n"
    config = load_config(write_config(SMALLEST + training + schedule))
    assert (config.training.adam_epsilon, config.training.max_target_tokens) == (1e-9, 2_000_000)
    assert (config.schedule.learning_rate, config.schedule.factor) == (0.00005, 2.0)


def test_byte_order_mark_and_windows_line_ends(write_config: Write) -> None:
    expected = load_config(write_config(SMALLEST))
    assert load_config(write_config("\ufeff" + SMALLEST.replace("\n", "\r\n"))) == expected


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing yet\n", "---\n", "null\n", "\ufeff"])
def test_an_empty_file(text: str, write_config: Write) -> None:
    assert complaint(write_config(text)).startswith("configs/my.yaml: this file is empty.")


@pytest.mark.parametrize(("text", "held"), [("hello", "hello"), ("- a\n- b\n", "a list"), ("3", "3")])
def test_a_file_without_sections(text: str, held: str, write_config: Write) -> None:
    assert complaint(write_config(text)) == (
        "configs/my.yaml: a config is made of sections such as 'data:' with keys beneath them, "
        f"but this file holds {held}."
    )


@pytest.mark.parametrize("content", [b"data:\n  path: caf\xe9\n", b"a: 1\nb: \xff\xfe"])
def test_a_file_that_is_not_utf_8(content: bytes, write_config: Write) -> None:
    path = write_config("")
    path.write_bytes(content)
    assert complaint(path) == (
        "configs/my.yaml: this file cannot be read: line 2 is not UTF-8; save the file again as UTF-8."
    )


def test_a_file_too_large_to_be_a_config(write_config: Write) -> None:
    assert load_config(write_config(SMALLEST + "#" * (1_000_000 - len(SMALLEST)))).data.src == "en"
    answer = complaint(write_config(SMALLEST + "#" * (1_000_001 - len(SMALLEST))))
    assert answer == "configs/my.yaml: this file cannot be read: it is larger than 1,000,000 bytes."


def test_a_missing_file_and_its_neighbours(write_config: Write) -> None:
    write_config(SMALLEST)
    Path("configs/notes.txt").touch()
    assert complaint(Path("configs/ny.yaml")) == (
        "configs/ny.yaml: there is no such file. Did you mean 'configs/my.yaml'?"
    )
    assert complaint(Path("configs/notes")) == (
        "configs/notes: there is no such file. Give a config file, such as 'configs/my.yaml'."
    )
    assert complaint(Path("my")) == "my: there is no such file. Give a config file."
    assert complaint(Path("cfg/my.yaml")) == (
        "cfg/my.yaml: there is no such file, nor is there a folder 'cfg'."
    )


def test_a_folder_given_for_a_file(write_config: Write) -> None:
    write_config(SMALLEST)
    assert complaint(Path("configs")) == (
        "configs: this is a folder. Give a config file, such as 'configs/my.yaml'."
    )


def test_a_file_that_cannot_be_read(write_config: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_config(SMALLEST)
    assert complaint(path / "x") == "configs/my.yaml/x: this file cannot be read: Not a directory."

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert complaint(path) == "configs/my.yaml: this file cannot be read: Permission denied."


def test_neighbours_in_a_folder_that_may_not_be_listed(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert complaint(Path("configs/my.yaml")) == (
        "configs/my.yaml: there is no such file. Give a config file."
    )


def test_overrides_change_the_file_and_the_later_wins(write_config: Write) -> None:
    config = load_config(
        write_config(SMALLEST + "  seed: 1\nmodel:\ntokenizer: null\n"),
        [
            *("training.seed=2", "training.seed=3", "model.num_heads=8", "tokenizer.shared=true"),
            *(
                "data.name=a=b",
                "data.revision='1e5'",
                "schedule.learning_rate=1e-4",
                "training.clip_norm=null",
            ),
            *("data.path=../shared/data", "validation.metric = chrf"),
        ],
    )
    assert (config.training.seed, config.model.num_heads, config.tokenizer.shared) == (3, 8, True)
    assert (config.data.name, config.data.revision, config.schedule.learning_rate) == ("a=b", "1e5", 1e-4)
    assert (config.training.clip_norm, config.data.path) == (None, "../shared/data")
    assert config.validation.metric == "chrf"


def test_overrides_can_give_what_the_file_lacks_and_mend_what_it_has_wrong(write_config: Write) -> None:
    path = write_config("training:\n  max_steps: never\n")
    overrides = ["data.path=builtin:reverse", "data.src=en", "data.tgt=de", "training.max_steps=5"]
    assert load_config(path, overrides).training.max_steps == 5


FORM = "the form is section.key=value, such as training.seed=2."


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("foo", FORM),
        ("training.seed", FORM),
        ("training=3", FORM),
        ("training.=3", FORM),
        (".seed=3", FORM),
        ("=3", FORM),
        ("", FORM),
        ("num_heads=8", "unknown key 'num_heads'. It belongs to model: model.num_heads."),
        ("modle.d_model=8", "unknown key 'modle'. Did you mean 'model'?"),
        ("model.d_modl=3", "unknown key 'model.d_modl'. Did you mean 'd_model'?"),
        (
            "training.seed=x",
            "training.seed must be a whole number of at least 0 and below 1000000000000000000, not x.",
        ),
        (
            "training.seed='3'",
            "training.seed must be a whole number of at least 0 and below 1000000000000000000, "
            "not '3'. Remove the quotes.",
        ),
        (
            "data.path=corpus #2",
            "YAML takes what follows # for a comment: put the value in quotes, such as "
            "--set 'data.path=\"a #b\"'.",
        ),
        ("data.src=", "data.src must be text that is not empty, but it is empty."),
        ("data.src=null", "data.src must be text that is not empty, not null."),
        (
            "data.path=[1",
            "this is not valid YAML: expected ',' or ']', but got '<stream end>'. Text that "
            "begins with one of * & ! [ { | > @ ` % must be in quotes.",
        ),
        (
            "data.path=*x",
            "anchors and aliases (& and *) are not used here; write the value out, or quote the text.",
        ),
    ],
)
def test_a_wrong_override_is_quoted(override: str, message: str, write_config: Write) -> None:
    answer = complaint(write_config(SMALLEST + "  seed: 1\n"), override)
    assert answer == f"override {override}: {message}"


def test_a_mixed_source_is_blamed_for_its_own_mistake(write_config: Write) -> None:
    answer = complaint(write_config(SMALLEST), "data.mix=x.csv columns=1", "data.columns=1,2")
    assert answer.startswith(
        "override data.mix=x.csv columns=1: data.mix: in 'x.csv columns=1', columns must"
    )


def test_a_number_is_text_where_text_is_taken(write_config: Write) -> None:
    overrides = ["data.path=2024", "data.revision=1e5", "data.name=null"]
    data = load_config(write_config(SMALLEST), overrides).data
    assert (data.path, data.revision, data.name) == ("2024", "1e5", None)


def test_the_file_is_blamed_for_its_own_mistakes_although_an_override_is_there(write_config: Write) -> None:
    answer = complaint(write_config(SMALLEST + "model: 3\n"), "model.d_model=8")
    assert answer.startswith("configs/my.yaml, line 7: 'model' must be a section")


def test_an_override_that_breaks_a_check_with_the_file_is_blamed(write_config: Write) -> None:
    answer = complaint(write_config(SMALLEST + "model:\n  d_model: 64\n"), "model.num_heads=3")
    assert answer.startswith("override model.num_heads=3: model.d_model (64) must be a multiple of")
