"""Files and overrides: what loads, and what each mistake is answered with, also if made at random."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mt.config.config import Config
from mt.config.load import load_config
from mt.config.located_yaml import read_yaml
from mt.config.write import changed_options, config_to_yaml
from mt.display import visible
from mt.errors import ConfigError
from tests.config.conftest import DATA, SMALLEST, Write, complaint

GOLDEN = Path(__file__).parent.parent / "golden"
# Of the finished golden run.
CONFIG = """\
data: {path: corpus, src: en, tgt: de, max_length: 12}
tokenizer: {min_frequency: 1}
model: {d_model: 8, num_heads: 2, d_ff: 16, num_encoder_layers: 1, num_decoder_layers: 1, dropout: 0.01}
schedule: {learning_rate: 0.02, warmup_steps: 20}
training: {device: cpu, max_steps: 600, batch_tokens: 200, log_every_steps: 100}
validation: {every_steps: 600, num_samples: 1}
checkpoint: {every_steps: 600, keep: 1}
"""
VALID = Config.model_validate(
    {"data": {"path": "builtin:primer", "src": "en", "tgt": "de"}, "training": {"max_steps": 10}}
)


def test_the_smallest_config_has_defaults_for_the_rest(write_config: Write) -> None:
    config = load_config(write_config(SMALLEST))
    assert config == VALID
    for text in (
        SMALLEST + "model:\nschedule: null\ntokenizer: {}\n",
        "\ufeff" + SMALLEST.replace("\n", "\r\n"),
    ):
        assert load_config(write_config(text)) == config


def test_languages_are_text_and_numbers_are_as_people_write_them(write_config: Write) -> None:
    text = SMALLEST.replace("src: en", "src: no") + "  adam_epsilon: 1e-9\n  max_skipped_steps: 2_000_000\n"
    config = load_config(write_config(text), ["data.tgt=on"])
    assert (config.data.src, config.data.tgt) == ("no", "on")
    assert (config.training.adam_epsilon, config.training.max_skipped_steps) == (1e-9, 2_000_000)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("# nothing yet\n", "made of sections"),
        ("hello", "made of sections"),
        ("- a\n- b\n", "made of sections"),
        ("#" * 1_000_001, "larger than 1,000,000 bytes"),
    ],
)
def test_a_file_without_sections(text: str, what: str, write_config: Write) -> None:
    answer = complaint(write_config(text))
    assert answer.startswith("configs/my.yaml: ")
    assert what in answer


def test_a_file_that_cannot_be_read_and_its_neighbours(write_config: Write) -> None:
    path = write_config(SMALLEST)
    Path("configs/notes.txt").write_bytes(b"data:\n  path: caf\xe9\n")
    Path("configs/not-utf-8.yaml").write_bytes(b"\xe9")
    assert complaint(Path("configs/not-utf-8.yaml")).endswith("save the file again.")
    for name, what in {
        "configs/ny.yaml": "cannot be read: No such file or directory. Did you mean configs/my.yaml?",
        "configs/notes.txt": "cannot be read: line 2 is not UTF-8",
        "quickstart.yaml": "There is a recipe named quickstart",
        "configs": "cannot be read: Is a directory.",
        f"{path}/x": "cannot be read: Not a directory.",
    }.items():
        answer = complaint(Path(name))
        assert answer.startswith(f"{name}: ")
        assert what in answer


def test_overrides_change_the_file_and_the_later_wins(write_config: Write) -> None:
    config = load_config(
        write_config(SMALLEST + "  seed: 1\nmodel:\ntokenizer: null\n"),
        [
            *("training.seed=2", "training.seed=3", "model.num_heads=8", "tokenizer.shared=true"),
            *("data.name=a=b", "data.revision=1e5", "schedule.learning_rate=1e-4"),
            *("training.clip_norm=null", "data.path=[a #2", "validation.metric = chrf"),
        ],
    )
    assert (config.training.seed, config.model.num_heads, config.tokenizer.shared) == (3, 8, True)
    assert (config.data.name, config.data.revision, config.schedule.learning_rate) == ("a=b", "1e5", 1e-4)
    assert (config.training.clip_norm, config.data.path) == (None, "[a #2")
    assert config.validation.metric == "chrf"


FORM = "the form is section.key=value"


@pytest.mark.parametrize(
    ("override", "what"),
    [
        *(
            (wrong, FORM)
            for wrong in ("foo", "training.seed", "training=3", "training.=3", ".seed=3", "seed=3")
        ),
        ("modle.d_model=3", "unknown key 'modle'. Did you mean model?"),
        ("model.d_modl=3", "unknown key 'model.d_modl'. Did you mean model.d_model?"),
        ("training.seed=x", "training.seed must be a whole number"),
        ("training.seed='3'", "training.seed must be a whole number"),
        ("data.src=", "data.src must be text that is not empty, but it is empty."),
        ("model.num_heads=3", "model.d_model (64) must be a multiple of"),
        ("data.sources=x", "'data.sources' must be a mapping, that is, keys indented beneath it, not x."),
        ("data.sources.a=x", "'data.sources.a' must be a mapping"),
        ("data.sources.a.weight=2", "data.sources.a.path is missing, and has no default. Folder, file"),
        ("data.sources.news.weight=0", "data.sources.news.weight must be a number above 0 and at most 1000"),
        ("data.sources.news.weigth=2", "'data.sources.news.weigth'. Did you mean data.sources.news.weight?"),
        ("data.sources.own.path=x", "data.sources.own: a name has letters, digits, - and _, and is not own."),
        ("data.mix=x", "data.mix and data.sources exclude each other"),
        ("training.seed.x=1", "training.seed must be a whole number"),
    ],
)
def test_a_wrong_override_is_quoted(override: str, what: str, write_config: Write) -> None:
    sources, model = "  sources: {news: {path: x}}\n", "model: {num_heads: 4, d_model: 64}\n"
    path = write_config(f"{DATA}{sources}training: {{max_steps: 10}}\n{model}")
    answer = complaint(path, override)
    assert answer.startswith(f"--set {override}: ")
    assert what in answer


def test_a_list_is_overridden_as_it_is_written_in_a_file(write_config: Write) -> None:
    file = write_config(SMALLEST + "  seed: 1\n")
    config = load_config(file, ["training.freeze=[encoder.*, src_embedding.*]"])
    assert config.training.freeze == "encoder.*, src_embedding.*"


def test_a_config_older_than_an_option_means_what_was_done_before(write_config: Write) -> None:
    written = config_to_yaml(load_config(write_config(SMALLEST)), comments=False)
    changes = {"invisible": "keep", "unescape_html": "true", "skip_bad_rows": "true"}
    set_otherwise = load_config(
        write_config(written), [f"cleaning.{key}={value}" for key, value in changes.items()]
    )
    full = config_to_yaml(set_otherwise, comments=False)
    before = {"invisible": "keep", "unescape_html": False, "skip_bad_rows": False}
    for key, value in changes.items():
        older = full.replace(f"  {key}: {value}\n", "")
        assert older != full
        assert load_config(write_config(older)).cleaning == set_otherwise.cleaning.model_copy(
            update={key: before[key]}
        )
    older = written.replace("  invisible: drop\n", "")
    assert load_config(write_config(older)).cleaning.invisible == "keep"
    assert load_config(write_config(older), ["cleaning.invisible=drop"]).cleaning.invisible == "drop"
    newer = SMALLEST + "cleaning:\n  unicode_form: none\n"
    assert load_config(write_config(newer)).cleaning.invisible == "drop"


def test_an_option_that_is_left_out_means_today_what_it_meant_when_the_golden_runs_were_made() -> None:
    given, _ = read_yaml(CONFIG, str)
    assert isinstance(given, dict)
    names = {f"{section}.{key}" for section, keys in given.items() for key in keys}
    golden = load_config(GOLDEN / "format_2" / "run" / "config.yaml")
    # These were changed since, or depend on the machine.
    changed = "cleaning.invisible cleaning.unicode_form validation.batch_sentences"
    resolved = "training.precision training.compile"
    assert changed_options(golden) - names == {*changed.split(), *resolved.split()}


def test_removed_options_are_ignored_at_their_old_defaults(write_config: Write) -> None:
    path = write_config(SMALLEST + "  simcut: 0.0\n  simcut_share: 0.3\n  bidirectional_epochs: 0\n")
    assert load_config(path, ["training.max_target_tokens=null"]) == VALID
    expected = load_config(path, ["data.workers=null", "data.seed=1"])
    assert load_config(write_config(SMALLEST), ["data.workers=4"]) == expected
    assert "unknown key 'data.seed'" in complaint(path, "data.seed=2")
    for key in ("simcut", "bidirectional_epochs", "max_target_tokens"):
        assert f"unknown key 'training.{key}'" in complaint(path, f"training.{key}=3")


TEXT = config_to_yaml(VALID, comments=False)
HOSTILE = (
    "0 -1 1_0 1e-4 1e999 .nan 010 1:30 null true no '3' '' é中😀 [1,2] {a:1} ' \" [ { *a | >- % @ ` ? << "
    '& &a ]} !!python/name:os.system !!int#3 "\\e[31m" "\\uD800" "\\UFFFFFFFF" [[[[[[[[[[ \x00 \x1b[31m '
    "\ufeff \x85 \u2028 a:#b -#1 \n \n--- \n-#a \n## \n\t \n##"
)
WORDS = st.one_of(
    st.sampled_from([word.replace("#", " ") for word in HOSTILE.split(" ")]), st.text(max_size=12)
)


@st.composite
def garbage(draw: st.DrawFn) -> bytes:
    """Several mistakes of a hurried hand, or a hostile one, and sometimes bytes that are not text."""
    text = TEXT
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        text = text[:start] + draw(WORDS) + text[start + draw(st.sampled_from([0, 0, 1, 5, 40])) :]
    content = text.encode("utf-8", errors="surrogatepass")
    at = draw(st.integers(0, len(content)))
    return content[:at] + draw(st.one_of(st.just(b""), st.binary(max_size=6))) + content[at:]


@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_broken_configs(tmp_path: Path, count: int) -> None:
    path = tmp_path / "my.yaml"
    num_loaded = 0

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(content=garbage())
    def check(content: bytes) -> None:
        nonlocal num_loaded
        path.write_bytes(content)
        try:
            load_config(path)
        except ConfigError as error:
            # YAML's line breaks: not those of str.splitlines(), which also splits at \x0b, \x0c and \x1c.
            lines = re.split("\r\n|[\r\n\x85\u2028\u2029]", content.decode("utf-8-sig", errors="replace"))
            for sentence in str(error).split("\n"):
                assert visible(sentence) == sentence
                match = re.fullmatch(rf"{re.escape(str(path))}(?:, line (\d+))?: (.*)", sentence)
                assert match, sentence
                assert not match[1] or 1 <= int(match[1]) <= len(lines)
        else:
            num_loaded += 1

    check()
    # By chance some are right; if all or none were, the drawing would be wrong.
    assert 0 < num_loaded < count * 0.6
