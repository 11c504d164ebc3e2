"""The site and the images, as far as their files show it without mkdocs and docker."""

import re
from pathlib import Path

import yaml

from scripts.site import first_page

ROOT = Path(__file__).parent.parent


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_each_page_is_in_the_navigation_of_the_site_and_nothing_else() -> None:
    pages = re.findall(r"\S+\.\w+", str(yaml.safe_load(_read("mkdocs.yml"))["nav"]).replace("'", " "))
    assert sorted(pages) == sorted(["index.md", *(page.name for page in (ROOT / "docs").glob("*.md"))])
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", first_page())
    assert {"installing.md", "attention.png", "../CONTRIBUTING.md"} < set(links)
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


def test_an_image_copies_what_docker_is_given_and_installs_what_is_pinned() -> None:
    given = re.findall(r"^!(\S+)", _read(".dockerignore"), re.MULTILINE)
    images = {"Dockerfile": {"translate"}, "Dockerfile.train": {"translate", "run", "torch"}}
    for name, installed in images.items():
        assert set(re.findall(r"^COPY (\S+) ", _read(name), re.MULTILINE)) <= set(given)
        assert set(re.findall(r'\$2 == "\[(\w+)\]"', _read(name))) == installed
        assert installed <= set(re.findall(r"^# \[(\w+)\]", _read("constraints.txt"), re.MULTILINE))


def test_what_trains_shows_and_serves_shares_a_volume_and_is_reached_from_this_machine() -> None:
    services = yaml.safe_load(_read("compose.yaml"))["services"]
    mounts = {name: each["volumes"][0] for name, each in services.items()}
    assert mounts == {
        "train": "runs:/srv/runs",
        "tensorboard": "runs:/srv/runs:ro",
        "serve": "runs:/srv/runs:ro",
    }
    ports = [port.rpartition(":")[0] for each in services.values() for port in each.get("ports", [])]
    assert ports == ["127.0.0.1:6006", "127.0.0.1:8000"]
