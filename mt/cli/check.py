"""`mt check`: find out what a run will be like."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option, echo

from mt.cli.options import OverridesOption, load_config_and_run
from mt.cli.tables import JsonFlag, print_json
from mt.display import aligned

if TYPE_CHECKING:
    from mt.preflight.check import Section


def check(
    config: Annotated[Path, Option("--config", "-c", help="The config file to check.")],
    overrides: OverridesOption = None,
    run: Annotated[Path | None, Option(help="The run directory. Default: runs/NAME for NAME.yaml.")] = None,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="Also show details, and some sentences.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Check before training whether a config works, how good the model can get, and how long it takes.

    It prints a line on the corpus, the vocabulary, the lengths, the model, memory, time and disk space,
    then warnings. It times a few training steps, and writes nothing but the cache.

    Exit codes:

      0  the run can begin or continue.
      2  it cannot; the reason is printed.
    130  stopped by Ctrl-C.
    """
    loaded, directory = load_config_and_run(config, overrides, run)
    if not directory.exists:
        from mt.data.sources.find import check_sources

        check_sources(loaded.data)
    # After the checks above, because importing torch is slow.
    from mt.preflight.check import preflight

    sections = []

    def show(section: "Section") -> None:
        if json:
            sections.append(section._asdict())
            return
        echo(f"{section.name:<12}{section.summary}")
        if verbose and section.details:
            echo("".join(f"    {line}\n" for line in aligned(section.details)))

    conclusion = preflight(loaded, directory, show)
    if json:
        print_json({"sections": sections, **conclusion._asdict()})
        return
    for warning in conclusion.warnings:
        echo(f"warning: {warning}")
    echo(conclusion.verdict)
