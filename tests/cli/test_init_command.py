"""`mt init` as a shell would call it: the config that it writes, and what it refuses in its own words."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mt.config.load import load_config
from mt.data.corpus import load_split
from mt.run_directory import RunDirectory
from tests.fixture_types import Call, Refuse

pytestmark = pytest.mark.usefixtures("steps_of_a_tenth_of_a_second")
SIDES = ("--src", "en", "--tgt", "de")


def test_a_config_is_written_and_can_be_loaded(succeed: Call, refuse: Refuse, tiny_corpus: Path) -> None:
    init = ("init", "--data", tiny_corpus)
    _, out, err = succeed(*init, *SIDES)
    assert out == ""
    summary = err.splitlines()[-8:-1]
    names = "passes steps model unknown warning warning warning"
    assert [line.split()[0] for line in summary] == names.split()
    assert err.endswith("Wrote en-de.yaml. Train with it:  mt train --config en-de.yaml\n")
    config = load_config(Path("en-de.yaml"))
    assert (config.data.path, config.data.src, config.data.tgt) == (str(tiny_corpus), "en", "de")
    assert [path.name for path in Path().iterdir()] == ["en-de.yaml"]
    # The suggestion can be pasted into a shell.
    err = succeed(*init, "--src", "de", "--tgt", "en", "--minutes", "2", "-o", "my own.yaml").err
    assert err.endswith("mt train --config 'my own.yaml'\n")
    other = load_config(Path("my own.yaml"))
    assert (other.data.src, other.data.tgt) == ("de", "en")
    # At ten steps a second, less six seconds for the start, and a validation of a second.
    steps = int(err.partition("steps    ")[2].split()[0].replace(",", ""))
    assert 0.9 * 1130 < steps <= 1130
    assert other.training.limits == {"max_minutes": 2.0}
    before = Path("en-de.yaml").read_text()
    assert "en-de.yaml exists already. Choose another file with --output" in refuse(*init, *SIDES)
    assert Path("en-de.yaml").read_text() == before
    assert "nowhere/a.yaml cannot be written" in refuse(*init, *SIDES, "-o", "nowhere/a.yaml")


@pytest.mark.parametrize(
    ("name", "header", "row", "options"),
    [
        ("c.csv", "", "line {};Zeile {}", ("--columns", "1,2", "--delimiter", "semicolon")),
        ("deu.txt", "", "line {}\tZeile {}\tCC-BY", ("--columns", "1,2", "--delimiter", "tab")),
        ("c.tsv", "", "x\tZeile {}\tline {}", ("--columns", "3,2")),
        ("c.csv", "german|english\n", "Zeile {}|line {}", ("--columns", "english,german")),
        ("c.csv", "de;en\n", "Zeile {};line {}", ()),
    ],
)
def test_a_table_as_people_have_it(
    succeed: Call, tmp_path: Path, name: str, header: str, row: str, options: tuple[str, ...]
) -> None:
    corpus = tmp_path / name
    corpus.write_text(header + "".join(row.format(i, i) + "\n" for i in range(300)), encoding="utf-8")
    succeed("init", "--data", corpus, *SIDES, *options, "-o", "c.yaml")
    text = Path("c.yaml").read_text(encoding="utf-8")
    # The words of both sides are told apart by these two.
    data = load_config(Path("c.yaml")).data
    assert load_split(data, "test")[0]["src"].startswith("line")
    assert load_split(data, "test")[0]["tgt"].startswith("Zeile")
    assert ("columns:" in text, "delimiter:" in text) == ("--columns" in options, "--delimiter" in options)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("", "give --data, --src and --tgt, such as: mt init --data"),
        ("--data x --src en", "give --data, --src and --tgt, such as: mt init --data"),
        ("--data nowhere", "mt: there is no folder nowhere with folders such as en-de"),
        ("--data nowhere --src en --tgt de,fr", "mt: --data: there is no file or folder 'nowhere'"),
        ("--data c.csv --src en --tgt de,fr,de", "'de,fr,de': name each language once"),
        ("--data c.csv --src en --tgt fr,", "name each language once, such as --tgt de,fr"),
        ("--data c.csv --src en,de --tgt fr,en", "mt: --src and --tgt are both 'en'"),
        ("--data c.csv --src en --tgt de --both-ways --columns english,german", "--columns is for one"),
        ("--data pairs --src en --tgt de,it", "pairs has de-fr, en-de, but neither en-it nor it-en"),
        ("--data nowhere --src en --tgt de", "mt: --data: there is no file or folder 'nowhere'"),
        ("--data c.csv --src en --tgt en", "mt: --src and --tgt are both 'en'"),
        ("--data c.csv --src en --tgt de", "no column 'en', which --src names"),
        ("--data c.csv --src en --tgt de", "give numbers: --columns 1,2."),
        ("--data c.csv --src en --tgt de --columns a,b", "no column 'a', which --columns names"),
        ("--data c.jsonl --src en --tgt de", "Set --columns text.en,text.de."),
        ("--data c.txt --src en --tgt de", "as --data SOURCE.txt,TARGET.txt, or set --delimiter"),
        ("--data c.txt --src en --tgt de --columns english", "--columns must be two columns"),
    ],
)
def test_mistakes_are_explained_in_options_of_the_command(arguments: str, says: str, refuse: Refuse) -> None:
    Path("c.csv").write_text("english,german\n")
    Path("c.jsonl").write_text('{"text": {"en": "a dog", "de": "ein Hund"}}\n')
    Path("c.txt").write_text("a dog\n")
    for folder in ("en-de", "de-fr", "old"):
        Path("pairs", folder).mkdir(parents=True)
    sentence = refuse("init", *arguments.split())
    assert says in sentence
    assert "data." not in sentence
    assert not Path("en-de.yaml").exists()


def test_several_directions_in_one_corpus_or_in_a_folder_for_each(succeed: Call, tiny_corpus: Path) -> None:
    def paths(file: str, *options: str | Path) -> dict[tuple[str, str], str]:
        """The path of each direction in the config that is written to this file."""
        assert succeed("init", *options).err.endswith(f"mt train --config {file}\n")
        config = load_config(Path(file))
        data, others = config.data, config.data.sources
        assert [*others] == ["-".join(direction) for direction in data.directions[1:]]
        assert (data.temperature, config.validation.over) == ((5, "all") if others else (1, "own"))
        read = [data.path, *(source.path for source in others.values())]
        return dict(zip(data.directions, read, strict=True))

    corpus, en_de, fr_en = str(tiny_corpus), "pairs/en-de", "pairs/fr-en"
    both = paths("en-de.yaml", "--data", corpus, *SIDES, "--both-ways")
    assert both == {("en", "de"): corpus, ("de", "en"): corpus}
    # Where there are folders, their names are the directions, and each can be read backwards.
    shutil.copytree(tiny_corpus, en_de)
    shutil.copytree(tiny_corpus, fr_en)
    for file in Path(fr_en).glob("*.de"):
        file.rename(file.with_suffix(".fr"))
    folders = "--data", "pairs"
    assert paths("en-de-fr.yaml", *folders) == {("en", "de"): en_de, ("fr", "en"): fr_en}
    out_of = paths("out-of.yaml", *folders, "--src", "en", "--tgt", "de,fr", "-o", "out-of.yaml")
    assert out_of == {("en", "de"): en_de, ("en", "fr"): fr_en}
    assert paths("fr-en.yaml", *folders, "--src", "fr", "--tgt", "en") == {("fr", "en"): fr_en}
    # A corpus with folders beside it is still that corpus.
    shutil.copytree(tiny_corpus, "pairs", dirs_exist_ok=True)
    assert paths("whole.yaml", *folders, *SIDES, "-o", "whole.yaml") == {("en", "de"): "pairs"}


def test_a_config_names_the_schema_of_the_current_folder(succeed: Call, tiny_corpus: Path) -> None:
    def first_line(output: str) -> str:
        succeed("init", "--data", tiny_corpus, *SIDES, "-o", output)
        load_config(Path(output))
        return Path(output).read_text(encoding="utf-8").split("\n")[0]

    assert "$schema" not in first_line("without.yaml")
    Path("mt.schema.json").write_text(succeed("schema").out)
    assert first_line("beside.yaml") == "# yaml-language-server: $schema=mt.schema.json"
    Path("configs/mine").mkdir(parents=True)
    assert first_line("configs/mine/below.yaml") == "# yaml-language-server: $schema=../../mt.schema.json"


def test_a_run_to_begin_from_gives_its_own_corpus_or_the_languages_of_another(
    succeed: Call, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = trained.config_file.read_text()
    trained.config_file.write_text(text.replace("num_train_pairs: null", "num_train_pairs: 100"))
    asked: list[Any] = []

    def propose(origin: Any, data: Any, minutes: object) -> SimpleNamespace:
        asked.append((origin.run, origin.checkpoint, data.num_train_pairs, data.src, data.tgt, minutes))
        return SimpleNamespace(yaml="", summary=[])

    monkeypatch.setattr("mt.preflight.adapt.propose_adaptation", propose)
    for options in (
        ("--init-from", "tiny"),
        ("--init-from", "tiny@latest", "-o", "other.yaml", "--data", "builtin:primer", "--minutes", "3"),
        ("--init-from", "tiny", "-o", "back.yaml", "--src", "de", "--tgt", "en"),
    ):
        succeed("init", *options)
    assert asked == [
        ("runs/tiny", "best", 100, "en", "de", None),
        ("runs/tiny", "latest", None, "en", "de", 3.0),
        ("runs/tiny", "best", None, "de", "en", None),
    ]
    assert {path.name for path in Path().glob("*.yaml")} == {"adapted.yaml", "other.yaml", "back.yaml"}
