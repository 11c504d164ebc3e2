from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mt.config.load import load_config
from mt.data.corpus import load_split
from mt.run_directory import RunDirectory
from tests.fixture_types import Call

pytestmark = pytest.mark.usefixtures("steps_of_a_tenth_of_a_second")


def test_a_config_is_written_and_can_be_loaded(call: Call, tiny_corpus: Path) -> None:
    code, out, err = call("init", "--data", tiny_corpus, "--src", "en", "--tgt", "de")
    assert (code, out) == (0, "")
    summary = err.splitlines()[-8:-1]
    names = "passes steps model unknown warning warning warning"
    assert [line.split()[0] for line in summary] == names.split()
    assert err.endswith("Wrote en-de.yaml. Train with it:  mt train --config en-de.yaml\n")
    config = load_config(Path("en-de.yaml"))
    assert (config.data.path, config.data.src, config.data.tgt) == (str(tiny_corpus), "en", "de")
    assert [path.name for path in Path().iterdir()] == ["en-de.yaml"]
    assert call("init", "--data", tiny_corpus, "--src", "de", "--tgt", "en", "-o", "other.yaml")[0] == 0
    assert load_config(Path("other.yaml")).data.src == "de"
    # The suggestion can be pasted into a shell.
    _, _, err = call("init", "--data", tiny_corpus, "--src", "en", "--tgt", "de", "-o", "my own.yaml")
    assert err.endswith("mt train --config 'my own.yaml'\n")


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
    call: Call, tmp_path: Path, name: str, header: str, row: str, options: tuple[str, ...]
) -> None:
    corpus = tmp_path / name
    corpus.write_text(header + "".join(row.format(i, i) + "\n" for i in range(300)), encoding="utf-8")
    code, _, err = call("init", "--data", corpus, "--src", "en", "--tgt", "de", *options, "-o", "c.yaml")
    assert code == 0, err
    text = Path("c.yaml").read_text(encoding="utf-8")
    # The words of both sides are told apart by these two.
    data = load_config(Path("c.yaml")).data
    assert load_split(data, "test")[0]["src"].startswith("line")
    assert load_split(data, "test")[0]["tgt"].startswith("Zeile")
    assert ("columns:" in text, "delimiter:" in text) == ("--columns" in options, "--delimiter" in options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--minutes", "0"), "--minutes"),
        (("--minutes", "1e308"), "--minutes"),
        (("--columns", "english"), "--columns must be two columns"),
    ],
)
def test_a_budget_that_cannot_be_used(
    options: tuple[str, ...], named: str, call: Call, tiny_corpus: Path
) -> None:
    code, out, err = call("init", "--data", tiny_corpus, "--src", "en", "--tgt", "de", *options)
    assert (code, out) == (2, "")
    assert named in err
    assert not Path("en-de.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--data nowhere --src en --tgt de", "mt: --data: there is no file or folder 'nowhere'"),
        ("--data c.csv --src en --tgt en", "mt: --src and --tgt are both 'en'"),
        ("--data c.csv --src en --tgt de", "no column 'en', which --src names"),
        ("--data c.csv --src en --tgt de", "give numbers: --columns 1,2."),
        ("--data c.csv --src en --tgt de --columns a,b", "no column 'a', which --columns names"),
        ("--data c.jsonl --src en --tgt de", "Set --columns text.en,text.de."),
        ("--data c.txt --src en --tgt de", "as --data SOURCE.txt,TARGET.txt, or set --delimiter"),
    ],
)
def test_mistakes_are_explained_in_options_of_the_command(arguments: str, says: str, call: Call) -> None:
    Path("c.csv").write_text("english,german\n")
    Path("c.jsonl").write_text('{"text": {"en": "a dog", "de": "ein Hund"}}\n')
    Path("c.txt").write_text("a dog\n")
    code, _, err = call("init", *arguments.split())
    assert code == 2
    assert says in err
    assert "data." not in err


def test_a_config_names_the_schema_of_the_current_folder(call: Call, tiny_corpus: Path) -> None:
    def first_line(output: str) -> str:
        assert call("init", "--data", tiny_corpus, "--src", "en", "--tgt", "de", "-o", output)[0] == 0
        load_config(Path(output))
        return Path(output).read_text(encoding="utf-8").split("\n")[0]

    assert "$schema" not in first_line("without.yaml")
    Path("mt.schema.json").write_text(call("schema")[1])
    assert first_line("beside.yaml") == "# yaml-language-server: $schema=mt.schema.json"
    Path("configs/mine").mkdir(parents=True)
    assert first_line("configs/mine/below.yaml") == "# yaml-language-server: $schema=../../mt.schema.json"


def test_a_run_to_begin_from_gives_its_own_corpus_or_the_languages_of_another(
    call: Call, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = trained.config_file.read_text()
    trained.config_file.write_text(text.replace("num_train_pairs: null", "num_train_pairs: 100"))
    asked: list[Any] = []

    def propose(origin: object, data: object, minutes: object) -> SimpleNamespace:
        asked.append(data)
        return SimpleNamespace(yaml="", summary=[])

    monkeypatch.setattr("mt.preflight.adapt.propose_adaptation", propose)
    assert call("init", "--init-from", trained.path, "-o", "further.yaml")[0] == 0
    assert call("init", "--init-from", trained.path, "-o", "other.yaml", "--data", "builtin:primer")[0] == 0
    assert [(data.num_train_pairs, data.src, data.tgt) for data in asked] == [
        (100, "en", "de"),
        (None, "en", "de"),
    ]
