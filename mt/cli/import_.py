"""`mt import`: make a run of a model that was trained elsewhere."""

from pathlib import Path
from shlex import quote
from typing import Annotated

from typer import Argument, Option, echo

from mt.cli.logs import say
from mt.cli.options import installed_with
from mt.run_directory import RunDirectory


def import_(
    source: Annotated[str, Argument(help="A folder with a Marian model, or its id on the Hugging Face Hub.")],
    run: Annotated[Path, Option(help="The run to make.")],
    src: Annotated[str | None, Option(help="The source language. Default: as the model says.")] = None,
    tgt: Annotated[str | None, Option(help="The target language. Default: as the model says.")] = None,
) -> None:
    """Make a run of a Marian model in the layout of transformers, such as those of OPUS-MT.

    It translates, is scored, exported and adapted (mt init --init-from) like any other run, but has no
    training to continue. Needs the package sentencepiece.
    """
    with installed_with("mt-from-scratch[opus]"):
        from mt.export.marian import import_marian

        import_marian(source, RunDirectory(run), src=src, tgt=tgt)
    echo(f"{run}")
    name = quote(str(run))
    say(
        f'Translate with it:  mt translate --run {name} "..."\n'
        f"Adapt it:           mt init --init-from {name} --data PATH"
    )
