"""What the README and the quickstart show is what is there."""

import ast
import re
import sys
from pathlib import Path

from mt.builtin.primer import primer_pairs
from mt.config.load import load_config

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short() -> None:
    assert README.count("\n") <= 120


def test_the_config_shown_is_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "en-de.yaml").write_text(block, encoding="utf-8")
    config = load_config(tmp_path / "en-de.yaml")
    assert (config.data.path, config.training.max_epochs) == ("my-corpus", 30)


def test_the_map_has_the_lines_of_each_file() -> None:
    rows = re.findall(r"^\| \[\w+\]\((mt/.*)\) \| (\d+) \|", README, re.MULTILINE)
    assert len(rows) == 15
    assert {path: int(count) for path, count in rows} == {
        path: (ROOT / path).read_text(encoding="utf-8").count("\n") for path, _ in rows
    }
    assert f"{sum(int(count) for _, count in rows)} lines in this order" in README


# The names that the files of the map use and that are not in an earlier one, PyTorch or the standard library.
OUTSIDE_THE_MAP = {
    "mt.config.model.ModelConfig",
    "mt.config.training.ScheduleConfig",
    "mt.data.batches.pairs.EncodedSentences",
    "mt.device.Precision",
    "mt.training.session.Session",
    "mt.training.train_state.TrainState",
    "mt.transformer.cache.DecoderCache",
    "mt.transformer.kernels",
}


def test_each_name_in_the_map_is_from_an_earlier_file_but_for_eight() -> None:
    earlier = {"torch", *sys.stdlib_module_names}
    outside: set[str] = set()
    for path in re.findall(r"^\| \[\w+\]\((mt/.*)\) \|", README, re.MULTILINE):
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                for name in (f"{module}{alias.name}" for alias in node.names):
                    if not {name, name.rpartition(".")[0], name.partition(".")[0]} & earlier:
                        outside.add(name)
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
