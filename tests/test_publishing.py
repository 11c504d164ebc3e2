"""The site, the images and the service for systemd, as far as their files show without docker or systemd."""

import configparser
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from scripts.site import first_page

ROOT = Path(__file__).parent.parent


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _pages(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        else:
            for pages in entry.values():
                yield from _pages(pages)


def test_each_page_is_in_the_navigation_of_the_site_once_and_nothing_else() -> None:
    pages = list(_pages(yaml.safe_load(_read("mkdocs.yml"))["nav"]))
    assert sorted(pages) == sorted(["index.md", *(page.name for page in (ROOT / "docs").glob("*.md"))])
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", first_page())
    assert {"installing.md", "attention.png", "../CONTRIBUTING.md"} < set(links)
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


def test_an_image_copies_what_docker_is_given() -> None:
    given = re.findall(r"^!(\S+)", _read(".dockerignore"), re.MULTILINE)
    sections = re.findall(r"^# \[(\w+)\]", _read("constraints.txt"), re.MULTILINE)
    for name, installed in (
        ("Dockerfile", ["translate"]),
        ("Dockerfile.train", ["translate", "run", "torch"]),
    ):
        copied = re.findall(r"^COPY (\S+) ", _read(name), re.MULTILINE)
        assert set(copied) <= set(given)
        assert all((ROOT / path).exists() for path in copied)
        assert re.findall(r'\$2 == "\[(\w+)\]"', _read(name)) == installed
        assert set(installed) <= set(sections)


def test_what_trains_shows_and_serves_shares_a_volume() -> None:
    compose = yaml.safe_load(_read("compose.yaml"))
    services, (volume,) = compose["services"], compose["volumes"]
    mounted = {
        name: [mount for mount in each["volumes"] if "/srv/runs" in mount] for name, each in services.items()
    }
    only_read = [f"{volume}:/srv/runs:ro"]
    assert mounted == {"train": [f"{volume}:/srv/runs"], "tensorboard": only_read, "serve": only_read}
    files = [Path(build.get("dockerfile", "Dockerfile")) for build in _builds(services)]
    assert files == [Path("Dockerfile.train"), Path("Dockerfile.train"), Path("Dockerfile")]
    # Others reach neither unless somebody decides so.
    ports = [port for each in services.values() for port in each.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def _builds(services: dict[str, Any]) -> Iterator[dict[str, str]]:
    for each in services.values():
        yield each["build"] if isinstance(each["build"], dict) else {"context": each["build"]}


def test_the_service_of_systemd_writes_only_where_it_may() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(_read("docs/mt-serve.service"))
    service = unit["Service"]
    assert (service["DynamicUser"], service["ProtectSystem"]) == ("yes", "strict")
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    assert service["Environment"] == f"MT_CACHE=/var/cache/{service['CacheDirectory']}"
    assert service["ExecStart"].startswith("/opt/mt/bin/mt serve ")
