"""Every option is in a recipe, or a page says by an example what it is for."""

import re
from pathlib import Path

import yaml

from mt.config.explain import SECTIONS

ROOT = Path(__file__).parents[2]
# The reference names all options, and is no example of one.
GUIDES = [page for page in ROOT.glob("docs/*.md") if page.name != "options.md"]
PAGES = "\n".join(page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *GUIDES])
RECIPES = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in ROOT.glob("configs/*.yaml")]


def test_every_option_is_in_a_recipe_or_in_an_example() -> None:
    for section, key in [(section, key) for section, keys in SECTIONS.items() for key in keys]:
        in_recipe = any(key in (recipe.get(section) or {}) for recipe in RECIPES)
        # The table of the cleaning section names its options by their keys alone.
        in_table = section == "cleaning" and re.search(rf"^\| .*`{key}[:`].* \|", PAGES, re.MULTILINE)
        assert in_recipe or in_table or re.search(rf"\b{section}\.{key}\b", PAGES), f"{section}.{key}"
