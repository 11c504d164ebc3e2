"""What mkdocs.yml needs beside docs/: the README as the first page."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def first_page() -> str:
    """The README, with links as from docs/; what they name outside docs/ is not in the site."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\]\((?!https?://|#)(.*?)\)", lambda link: f"]({_from_docs(link[1])})", text)


def _from_docs(path: str) -> str:
    return path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"


def on_files(files: Any, *, config: Any) -> Any:
    """Called by mkdocs when it has listed the files of docs/."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "index.md", content=first_page()))
    return files
