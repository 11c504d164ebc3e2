"""`mt runs`: the runs in some folders, as a table."""

import json
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from mt.config.write import all_options
from mt.display import aligned, counted, one_line, shown
from mt.errors import ConfigError, DataError
from mt.files import read_text
from mt.reports.facts import RunFacts, short_count
from mt.run_directory import RunDirectory, runs_in

# The title of each column, its key in the summary, and how it is written; the most important ones first.
_COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("state", "state", str),
    ("step", "step", "{:,}".format),
    ("best BLEU", "best_bleu", "{:.2f}".format),
    ("test BLEU", "test_bleu", "{:.2f}".format),
    ("epochs", "epochs", "{:,}".format),
    ("tokens", "num_target_tokens", short_count),
    ("tokens/s", "tokens_per_second", "{:,.0f}".format),
)
_NUM_BEFORE_OPTIONS = 5
# By the names of the runs, the second by option first.
Facts = Mapping[str, RunFacts]
Options = Mapping[str, Mapping[str, str]]
_SEED = "training.seed"
_TRACKERS = "training.report_to"
_MOST_CHARACTERS = 24


def find_runs(paths: Iterable[Path]) -> list[RunDirectory]:
    """The runs among these folders, and those inside the others, without repetition."""
    runs: dict[Path, RunDirectory] = {}
    for path in paths:
        named = RunDirectory(path)
        inside = [] if named.exists else runs_in(path)
        runs |= {run.path.absolute(): run for run in inside or [named.require()]}
    return list(runs.values())


def runs_table(summaries: Facts, differing: Options, *, width: float) -> str:
    """A header and one line for each run, then sentences on runs in training or damaged, and on seeds.

    Options that differ are columns, too, those with most values first. The last columns may not fit.
    """
    columns = [["name", *map(one_line, summaries)]]
    for title, field, form in _COLUMNS:
        values = [facts.summary.get(field) for facts in summaries.values()]
        columns.append([title, *("-" if value is None else form(value) for value in values)])
    options = []
    in_order = dict(sorted(differing.items(), key=lambda item: -len({*item[1].values()})))
    for title, by_run in zip(_short_names(in_order), in_order.values(), strict=True):
        options.append([title, *(one_line(by_run.get(name, "-"), _MOST_CHARACTERS) for name in summaries)])
    columns[_NUM_BEFORE_OPTIONS:_NUM_BEFORE_OPTIONS] = options
    fitting: list[list[str]] = []
    for column in columns:
        width -= max(map(len, column)) + 2
        if width < -2:
            break
        fitting.append(column)
    notes = []
    for name, facts in summaries.items():
        if facts.detail is not None and facts.state in ("running", "damaged"):
            notes.append(f"{one_line(name)}: {facts.state}, {one_line(facts.detail)}")
        if facts.directions:
            notes.append(f"{one_line(name)}: BLEU is the mean of those that mt show lists by direction")
    if left_out := [title for title, *_ in columns[len(fitting) :]]:
        notes.append(f"no room for {', '.join(left_out)}; all columns: mt runs | less -S")
    for names in _settings(summaries):
        means = []
        for title, field in (("best BLEU", "best_bleu"), ("test BLEU", "test_bleu")):
            bleu: list[Any] = [summaries[name].summary.get(field) for name in names]
            if len(bleu) > 1 and None not in bleu:
                means.append(f"{title} {over_seeds(bleu)}")
        if means:
            seeds = f"{counted(len(names), 'seed')} ({', '.join(map(one_line, names))})"
            notes.append(f"{seeds}: {', '.join(means)}")
    lines = aligned(list(zip(*fitting, strict=True)), num_texts=2)
    if notes:
        lines += ["", *notes]
    return "\n".join(lines)


def _settings(summaries: Facts) -> list[list[str]]:
    """The names of the runs, those together that differ in the seed only; without damaged ones."""
    settings: dict[tuple[str, ...], list[str]] = {}
    for name, facts in summaries.items():
        if facts.config is not None:
            options = all_options(facts.config) | dict.fromkeys((_SEED, _TRACKERS), "")
            settings.setdefault(tuple(options.values()), []).append(name)
    return [*settings.values()]


def settings_table(
    summaries: Facts, differing: Options, files: Mapping[str, Path]
) -> tuple[list[str], list[list[str]]]:
    """The titles, and a row for each setting: options that differ, the number of seeds, and their scores.

    ``files`` have scores of other programs, in each run, by the title of their column.
    """
    options = [option for option in differing if option != _SEED]
    settings = _settings(summaries)
    scores = {name: _scores(summaries[name], files) for name in chain(*settings)}
    titles = dict.fromkeys(chain(*scores.values()))
    rows = []
    for names in settings:
        row = [differing[option][names[0]] for option in options]
        row.append(str(len(names)))
        for title in titles:
            of_seeds = [scores[name][title] for name in names if title in scores[name]]
            is_complete = len(of_seeds) == len(names)
            row.append(over_seeds(of_seeds, 4 if title in files else 2) if is_complete else "-")
        rows.append(row)
    return [*_short_names(options), "n", *titles], rows


def _scores(facts: RunFacts, files: Mapping[str, Path]) -> dict[str, float]:
    """The best BLEU of validation, the scores of the newest test, and those in files, by their titles."""
    scores = {}
    if facts.best_bleu is not None:
        scores["best BLEU"] = facts.best_bleu
    for score in facts.test_scores.values():
        scores[f"test {score.name}"] = score.value
    for title, file in files.items():
        scores[title] = statistics.fmean(read_scores(facts.run.path / file, title))
    return scores


def notes_on_tests(runs: Iterable[RunFacts]) -> Iterator[str]:
    """What is left out, whether the newest tests are not comparable, and the signatures of their scores."""
    tests = set()
    signatures = set()
    for facts in runs:
        if facts.config is None:
            yield f"left out: {shown(facts.run.path)}: {facts.detail}"
        for newest in facts.tests[-1:]:
            how = [f"{test.data}, {test.how}" for test in newest]
            tests.add(" and ".join(sorted(how)))
            for score in chain(*(test.scores.values() for test in newest)):
                signatures.add(f"{score.name} signature: {score.signature}")
    if len(tests) > 1:
        yield f"warning: these tests are not comparable: {' / '.join(sorted(tests))}"
    yield from sorted(signatures)


def over_seeds(values: Sequence[float], digits: int = 2) -> str:
    """The mean, with the standard deviation if there are several."""
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{deviation}"


def _short_names(options: Collection[str]) -> list[str]:
    """The options without their sections, where that is clear."""
    short = Counter(option.partition(".")[2] for option in options)
    names = []
    for option in options:
        key = option.partition(".")[2]
        names.append(key if short[key] == 1 else option)
    return names


def read_scores(file: Path, name: str) -> list[float]:
    """The scores of another program: a number in each line, or JSON with numbers in lists or at ``name``."""

    def named(mapping: dict[str, object]) -> object:
        lists = [value for value in mapping.values() if isinstance(value, list)]
        return [mapping[name]] if name in mapping else lists

    text = read_text(file, max_bytes=100_000_000)
    try:
        values = json.loads(text, object_hook=named) if file.suffix == ".json" else text.split()
        while any(isinstance(value, list) for value in values):
            values = [*chain(*values)]
        if not values:
            raise ValueError("it has not one number")
        return [float(value) for value in values]
    except (ValueError, TypeError) as error:
        remedy = f"It needs a number in each line, or in JSON numbers in lists or with the key {name!r}"
        raise DataError(f"{shown(file)} has no scores: {error}. {remedy}.") from error


def sorted_by(column: str, summaries: Facts, differing: Options) -> dict[str, RunFacts]:
    """The runs by a column of the table or an option that differs: the highest first, text alphabetically."""
    values: dict[str, Mapping[str, Any]] = {"name": {run: run for run in summaries}}
    for option, of_runs in differing.items():
        values |= {option: of_runs, option.partition(".")[2]: of_runs}
    for title, field, _ in _COLUMNS:
        values[title.lower()] = {run: facts.summary.get(field) for run, facts in summaries.items()}
    if column.lower() not in values:
        raise ConfigError(f"--sort: there is no column {column!r}, only {', '.join(values)}.")

    def key(run: str) -> tuple[bool, float, str]:
        value = values[column.lower()].get(run)
        with suppress(ValueError, TypeError):
            return False, -float(value), ""  # type: ignore[arg-type]
        return value is None, 0.0, str(value)

    return {run: summaries[run] for run in sorted(summaries, key=key)}


def differing_options(summaries: Facts) -> dict[str, dict[str, str]]:
    """The options that are not the same in all runs, with their values as YAML by the names of the runs."""
    options: dict[str, dict[str, str]] = {}
    for name, facts in summaries.items():
        if facts.config:
            sources = facts.config.data.sources
            stages = facts.config.training.stages
            named = {"data.sources": ", ".join(sources), "training.stages": ", ".join(stages)}
            options[name] = all_options(facts.config) | named
    differing = {}
    # What belongs to a source or a stage is compared if all runs have it.
    for key in next(iter(options.values()), ()):
        values = {name: of_run[key] for name, of_run in options.items() if key in of_run}
        if len(values) == len(options) and len({*values.values()}) > 1:
            differing[key] = values
    differing.pop(_TRACKERS, None)
    # What follows from another option.
    differing.pop("init_from.sha256", None)
    if differing.get("schedule.total_steps") == differing.get("training.max_steps"):
        differing.pop("schedule.total_steps", None)
    return differing
