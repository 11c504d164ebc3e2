"""The recipes: commented configs that are known to work, beside the code or in the wheel."""

import re
from pathlib import Path

_PACKAGE = Path(__file__).parent
# In a wheel the recipes are inside the package; where the code is run from its repository, beside it.
_FOLDERS = (_PACKAGE / "configs", _PACKAGE.parent / "configs")
FIRST = "quickstart"


def recipe_files() -> dict[str, Path]:
    """The file of each recipe, by its name; none where the package came without them."""
    folder = next((folder for folder in _FOLDERS if (folder / f"{FIRST}.yaml").is_file()), None)
    return {} if folder is None else {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def recipe_list() -> str:
    """Each recipe with the first sentence that it says of itself, one a line."""
    files = recipe_files()
    width = max(map(len, files), default=0)
    return "".join(f"{name:{width}}  {_first_sentence(file)}\n" for name, file in files.items())


def _first_sentence(file: Path) -> str:
    head = file.read_text(encoding="utf-8").split("\n#\n", 1)[0]
    text = " ".join(line.lstrip("# ") for line in head.splitlines())
    return re.split(r"(?<=\.) (?=[A-Z])", text, maxsplit=1)[0]


def how_to_train_one() -> str:
    """The sentence for a user who has no run yet, which works where they are."""
    file = Path("configs") / f"{FIRST}.yaml"
    if file.is_file():
        return f"Train one: mt train --config {file}"
    return f"Train one: mt init --recipe {FIRST} > {FIRST}.yaml; mt train --config {FIRST}.yaml"
