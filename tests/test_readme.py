"""What the README and the quickstart show is what is there."""

import ast
import re
from pathlib import Path

from mt.builtin.primer import primer_pairs
from mt.config.load import load_config

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short() -> None:
    assert README.count("\n") <= 110


def test_the_config_shown_is_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "en-de.yaml").write_text(block, encoding="utf-8")
    config = load_config(tmp_path / "en-de.yaml")
    assert (config.data.path, config.training.max_epochs) == ("my-corpus", 30)


def test_the_map_has_the_lines_of_each_file() -> None:
    rows = re.findall(r"^\| \[\w+\]\((mt/.*)\) \| (\d+) \|", README, re.MULTILINE)
    assert len(rows) == 12
    assert {path: int(count) for path, count in rows} == {
        path: (ROOT / path).read_text(encoding="utf-8").count("\n") for path, _ in rows
    }


# What the files of the map use beyond themselves, PyTorch and the standard library.
OUTSIDE_THE_MAP = {
    "mt.data.batches.pairs",
    "mt.data.batches.stream",
    "mt.errors",
    "mt.special_tokens",
    "mt.training.session",
    "mt.training.train_state",
    "mt.transformer.kernels.attention",
    "mt.transformer.kernels.cross_entropy",
    "mt.transformer.kernels.dropout",
    "mt.transformer.kernels.linear",
}


def test_each_name_in_the_map_is_from_an_earlier_file_or_one_of_ten_others() -> None:
    earlier: set[str] = set()
    outside: set[str] = set()
    for path in re.findall(r"^\| \[\w+\]\((mt/.*)\) \|", README, re.MULTILINE):
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("mt."):
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                modules = {name for name in names if (ROOT / f"{name.replace('.', '/')}.py").exists()}
                outside |= (modules or {str(node.module)}) - earlier
        earlier.add(path.removesuffix(".py").replace("/", "."))
    assert outside == OUTSIDE_THE_MAP


def test_the_quickstart_translates_sentences_that_were_held_out() -> None:
    script = (ROOT / "scripts/quickstart").read_text(encoding="utf-8")
    shown = re.findall(r'^    "(.+)"$', script, re.MULTILINE)
    held_out = {english for english, _ in primer_pairs("test", 1000)}
    assert len(shown) == 5
    assert set(shown) <= held_out
    (output,) = re.findall(r"^3\. Translate five of them\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert set(output.splitlines()[::2]) <= set(shown)


def test_every_recipe_says_why_for_each_option() -> None:
    for recipe in sorted((ROOT / "configs").glob("*.yaml")):
        block_has_comment = False
        for line in recipe.read_text(encoding="utf-8").split("\n"):
            # One comment may speak for the options that follow it, up to the next comment or section.
            if line.strip().startswith("#"):
                block_has_comment = True
            elif re.match(r"\w+:$", line):
                block_has_comment = False
            elif line.strip():
                assert block_has_comment, f"{recipe.name}: {line}"
