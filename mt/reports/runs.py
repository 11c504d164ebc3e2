"""`mt runs`: the runs in some folders, as a table and as JSON."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mt.config.config import Config
from mt.config.write import all_options
from mt.display import aligned, one_line, size
from mt.errors import RunError
from mt.reports.facts import RunFacts, short_count, short_duration
from mt.run_directory import TRAIN_ONE, RunDirectory

# The title of each column, the field of the facts, and how it is written.
_COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("state", "state", str),
    ("step", "step", "{:,}".format),
    ("epochs", "epochs", "{:,}".format),
    ("target tokens", "num_target_tokens", short_count),
    ("best BLEU", "best_bleu", "{:.2f}".format),
    ("at step", "best_bleu_step", "{:,}".format),
    ("tokens/s", "tokens_per_second", "{:,.0f}".format),
    ("age", "age_seconds", short_duration),
    ("size", "num_bytes", size),
)


def find_runs(paths: Iterable[Path]) -> list[RunDirectory]:
    """The runs among these folders, and those inside the others, without repetition."""
    runs: dict[Path, RunDirectory] = {}
    for path in paths:
        try:
            inside = [path] if is_run(path) else sorted(child for child in path.iterdir() if is_run(child))
        except OSError as error:
            raise RunError(f"Cannot list the runs in {path}: {error.strerror}. {TRAIN_ONE}") from error
        visible = [child for child in inside if child == path or not child.name.startswith(".")]
        if not visible:
            raise RunError(f"There is no run in {path}. {TRAIN_ONE}")
        runs |= {child.absolute(): RunDirectory(child) for child in visible}
    return list(runs.values())


def is_run(path: Path) -> bool:
    """Whether a folder is a run, or the remains of one, even if its config is lost."""
    run = RunDirectory(path)
    return any(map(os.path.lexists, (run.config_file, run.checkpoints_dir, run.metrics_file)))


def runs_table(summaries: Mapping[str, RunFacts]) -> str:
    """A header and one line for each run, then a sentence for each run that is training or damaged."""
    rows = [["name", *(title for title, _, _ in _COLUMNS)]]
    notes = []
    for name, summary in summaries.items():
        values = [(getattr(summary, field), form) for _, field, form in _COLUMNS]
        rows.append([one_line(name), *("-" if value is None else form(value) for value, form in values)])
        if summary.detail is not None and summary.state in ("running", "damaged"):
            notes.append(f"{one_line(name)}: {summary.state}, {one_line(summary.detail)}")
    return "\n".join([*aligned(rows, num_texts=2), *([""] if notes else []), *notes])


def differing_options(configs: Mapping[str, Config]) -> dict[str, list[str]]:
    """The options that are not the same in all these configs, with their value as YAML in each config."""
    options = [all_options(config) for config in configs.values()]
    rows = {key: [values[key] for values in options] for key in (options[0] if options else {})}
    return {key: values for key, values in rows.items() if len(set(values)) > 1}


def differences_table(differing: Mapping[str, Sequence[str]], names: Iterable[str]) -> str:
    """One line for each option, with its value in each run."""
    if not differing:
        return "no option differs"
    rows = [(key, *(one_line(value, max_length=40) for value in values)) for key, values in differing.items()]
    return "\n".join(aligned([("option", *map(one_line, names)), *rows]))


def runs_json(summaries: Mapping[str, RunFacts], differing: Mapping[str, Sequence[str]]) -> str:
    """The same facts as JSON in ASCII, with exact numbers in base units."""
    fields = ["detail", *(field for _, field, _ in _COLUMNS)]
    runs = [
        {"name": name, "path": str(summary.run.path), **{field: getattr(summary, field) for field in fields}}
        for name, summary in summaries.items()
    ]
    return json.dumps({"runs": runs, "differing_options": differing}, indent=2)
