"""What the README and the quickstart show is what is there."""

import re
from pathlib import Path

from mt.builtin.primer.generate import primer_pairs

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_config_shown_is_the_recipe() -> None:
    assert (ROOT / "configs/quickstart.yaml").read_text(encoding="utf-8") in README


def test_the_quickstart_translates_sentences_that_were_held_out() -> None:
    script = (ROOT / "scripts/quickstart").read_text(encoding="utf-8")
    shown = re.findall(r'^    "(.+)"$', script, re.MULTILINE)
    held_out = {english for english, _ in primer_pairs("test", 1000, 1)}
    assert len(shown) == 5
    assert set(shown) <= held_out


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
