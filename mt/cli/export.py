"""`mt export`: convert a trained model for another library, verified, or publish it on the Hub."""

import re
import sys
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer
from typer import Argument, Option, echo

from mt.cli import options
from mt.cli.logs import say
from mt.display import aligned, size
from mt.errors import ConfigError
from mt.hub import HUB_ID
from mt.run_directory import RunDirectory


def export(
    folder: Annotated[
        Path,
        Argument(metavar="OUT", help="The new folder to write; with --to hub, org/name."),
    ],
    to: Annotated[
        Literal["ctranslate2", "transformers", "hub"],
        Option(help="The target library, or the Hugging Face Hub."),
    ],
    run: options.RunOption = None,
    checkpoint: options.CheckpointOption = "best",
    precision: Annotated[
        Literal["float32", "bf16", "int8"],
        Option(help="The data type of the saved weights; int8 is for ctranslate2 only."),
    ] = "float32",
    data: Annotated[
        str | None, Option(help="Verify with this corpus's validation split. Default: what the run keeps.")
    ] = None,
    private: Annotated[bool, Option(help="On the hub: make a private repository.")] = False,
    license: Annotated[
        str | None, Option(help="On the hub: the licence of the model, such as cc-by-4.0.")
    ] = None,
    yes: Annotated[bool, Option(help="On the hub: publish without asking.")] = False,
) -> None:
    """Export a trained model to CTranslate2, transformers or the Hugging Face Hub, verified.

    Both models translate up to 200 validation sentences; unless they agree, nothing is written.

    The folder also gets the tokenizers, an example script that does not need mt, and a model card.

    To the hub goes a run of the checkpoint, for --run hub:org/name; what is sent is listed first.
    """
    options.check_needs("--to hub", to == "hub", private=private, license=license, yes=yes)
    directory = options.find_run(run)
    if to == "hub":
        options.check_excludes("--to hub", True, precision=precision != "float32", data=data)
        _publish(directory, str(folder), checkpoint, license or "unknown", private=private, yes=yes)
        return
    with options.installed_with("mt-from-scratch[transformers]" if to == "transformers" else to):
        from mt.export.export import agreement_rows, export_run, not_expressed

        record, agreements = export_run(
            directory, folder, to=to, checkpoint=checkpoint, precision=precision, data_path=data
        )
    for line in aligned(agreement_rows(agreements), num_texts=0):
        echo(line)
    for missing in not_expressed(record):
        say(f"warning: not in the exported model: {missing}.")
    echo(f"{folder}")
    if to == "ctranslate2":
        language = f" --to {quote(record.tgt)}" if record.languages else ""
        say(f"Translate with it:  mt translate --run {quote(str(folder))} --engine ctranslate2{language}")


def _publish(
    run: RunDirectory, hub_id: str, checkpoint: str, license: str, *, private: bool, yes: bool
) -> None:
    """Publish a run on the Hub, once its files were listed and the user has agreed."""
    if not re.fullmatch(HUB_ID, hub_id, re.ASCII):
        raise ConfigError(f"{hub_id} is no name of a repository on the Hub: write org/name.")
    if not (yes or sys.stdin.isatty()):
        raise ConfigError(
            "Publishing asks first, but there is no terminal: add --yes to publish without asking."
        )
    with options.installed_with("ctranslate2"), TemporaryDirectory() as parent:
        from mt.export.hub import push, write_publication

        folder = Path(parent, hub_id.rpartition("/")[2])
        folder.mkdir()
        files = write_publication(run, hub_id, folder, checkpoint=checkpoint, license=license)
        rows = [[size(path.stat().st_size), name] for name, path in files.items()]
        say("\n".join(["These files leave this machine:", *aligned(rows)]))
        where = f"{'private' if private else 'public'} repository {hub_id}"
        if not yes and not typer.confirm(f"Publish them in the {where}?"):
            raise ConfigError("Nothing was published.")
        push(files, hub_id, private=private)
    echo(f"hub:{hub_id}")
    say(f"Translate with it:  mt translate --run hub:{hub_id}")
