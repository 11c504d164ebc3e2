"""The recipes: commented configs that are known to work, from the repository or the installed package."""

import re
from pathlib import Path

_PACKAGE = Path(__file__).parent
# In a wheel the recipes are inside the package; in the repository, next to it.
_FOLDERS = (_PACKAGE / "configs", _PACKAGE.parent / "configs")
FIRST = "quickstart"


def recipe_files() -> dict[str, Path]:
    """The file of each recipe, by its name; none if the package came without them."""
    folder = next((folder for folder in _FOLDERS if (folder / f"{FIRST}.yaml").is_file()), None)
    return {} if folder is None else {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def recipe_list() -> str:
    """Each recipe and the first sentence of its comment, one per line."""
    files = recipe_files()
    width = max(map(len, files), default=0)
    return "".join(f"{name:{width}}  {_first_sentence(file)}\n" for name, file in files.items())


def _first_sentence(file: Path) -> str:
    head = file.read_text(encoding="utf-8").split("\n#\n", 1)[0]
    text = " ".join(line.lstrip("# ") for line in head.splitlines())
    return re.split(r"(?<=\.) (?=[A-Z])", text, maxsplit=1)[0]
