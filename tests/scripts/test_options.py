"""The reference page of all options is made from them, and current."""

import re
from pathlib import Path

from mt.config.explain import SECTIONS
from scripts.options import options_page

PAGE = (Path(__file__).parents[2] / "docs" / "options.md").read_text(encoding="utf-8")


def test_the_page_is_current() -> None:
    assert options_page() == PAGE, "renew it: python scripts/options.py > docs/options.md"


def test_it_names_every_option_once_in_its_section() -> None:
    parts = re.split(r"^## (\w+)\n", PAGE, flags=re.MULTILINE)
    named = {
        section: re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
        for section, table in zip(parts[1::2], parts[2::2], strict=True)
    }
    assert named == {section: list(fields) for section, fields in SECTIONS.items()}
    # Four columns in every row, whatever is written in them.
    rows = re.findall(r"^\|.*\|$", PAGE, re.MULTILINE)
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}
