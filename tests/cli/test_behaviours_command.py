"""`mt evaluate --behaviours` as a shell would call it, and the reports that keep what it found."""

import json
from pathlib import Path

from mt.run_directory import RunDirectory
from tests.fixture_types import Call, Refuse


def test_the_command_shows_it_and_reports_keep_it(
    succeed: Call, refuse: Refuse, several: RunDirectory, forty: Path
) -> None:
    data = ("--data", str(forty / "test"))
    run = ("--run", several.path)
    evaluate = ("evaluate", *run, "--to", "de", "--behaviours", *data)
    _, out, err = succeed(*evaluate)
    found = json.loads(several.behaviours_file.read_text(encoding="utf-8"))
    assert json.loads(succeed(*evaluate, "--json").out) == found
    names = [behaviour["name"] for behaviour in found["behaviours"]]
    table = [line.split("  ")[0] for line in out.splitlines()[1:] if line and not line.startswith("  ")]
    assert table[: len(names)] == names
    assert out.count("\n  wished ") == sum(len(behaviour["examples"]) for behaviour in found["behaviours"])
    assert f"by {found['engine']}" in err
    assert "left out: longest tenth: only 4 lines" in err
    for option in (("--beam", "5"), ("--outputs", "folder")):
        assert "--behaviours" in refuse("evaluate", *run, "--to", "de", "--behaviours", *option)
    for name in ("report.html", "card.md"):
        succeed("report", *run, "--out", name, "--format", name.split(".")[1])
        page = Path(name).read_text(encoding="utf-8")
        assert "Text as people write it" in page
        assert all(name in page for name in names)
    several.behaviours_file.write_text("{}")
    succeed("report", *run, "--out", "again.md", "--format", "md")
    assert "Text as people write it" not in Path("again.md").read_text(encoding="utf-8")
