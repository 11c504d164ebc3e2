"""`mt init`: a config for a corpus that the user has."""

from pathlib import Path
from typing import Annotated

import typer

from mt.cli.logs import show_logs
from mt.errors import ConfigError


def init(
    data: Annotated[
        str,
        typer.Option(metavar="PATH", help="A folder, a file, a Hub id, builtin:primer or builtin:reverse."),
    ],
    src: Annotated[str, typer.Option(metavar="LANGUAGE", help="The language to translate from, such as en.")],
    tgt: Annotated[str, typer.Option(metavar="LANGUAGE", help="The language to translate to, such as de.")],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The configuration of a Hub corpus.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: SRC-TGT.yaml.")
    ] = None,
) -> None:
    """Look at a corpus and write a commented config for it."""
    show_logs()
    if not (data and src and tgt):
        raise ConfigError("--data, --src and --tgt must not be empty.")
    file = output or Path(f"{src}-{tgt}.yaml")
    if file.is_file() or file.is_dir():
        raise ConfigError(f"{file} exists already. Choose another file with --output.")
    if not file.parent.is_dir():
        raise ConfigError(f"There is no folder {file.parent} for {file.name}. Choose one with --output.")
    from mt.pipeline.init import propose_config

    proposal = propose_config(data, src, tgt, name=name)
    from mt.atomic_files import write_output

    write_output(file, proposal)
    typer.echo(f"Wrote {file}. Train with it:  mt train --config {file}", err=True)
