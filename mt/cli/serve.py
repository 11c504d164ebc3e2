"""`mt serve`: translate over HTTP, for programs and in a browser."""

import ipaddress
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from mt import processes
from mt.cli.exported import check_no_run_options, load_exported
from mt.cli.extras import extra
from mt.cli.logs import show_logs
from mt.cli.options import (
    CheckpointOption,
    DeviceOption,
    EngineOption,
    PrecisionOption,
    VerboseOption,
    engine_name,
    find_run,
)
from mt.display import visible
from mt.errors import ConfigError, DataError

if TYPE_CHECKING:
    from mt.device import PrecisionName
    from mt.inference.model_translator import ModelTranslator
    from mt.inference.translator import Translator
    from mt.serving.batching import Align

LOG = logging.getLogger(__name__)


def serve(
    run: Annotated[
        list[Path] | None,
        typer.Option(
            "--run",
            metavar="PATH",
            help="A run directory, or a folder of mt export --to ctranslate2; repeat it for several language "
            "pairs. Default: the newest run in runs/.",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="The address to listen on; 0.0.0.0 lets other machines connect."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 chooses a free one.")
    ] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Only accept requests with the token in this file as bearer token."
        ),
    ] = None,
    max_text: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="The most characters in a text; longer texts get status 422."),
    ] = 5_000,
    max_queue: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="The most texts that may wait behind others; further requests get status 429.",
        ),
    ] = 1_000,
    timeout: Annotated[
        int,
        typer.Option(
            min=1,
            max=86_400,
            metavar="SECONDS",
            help="Give up on a request after this time, with status 503.",
        ),
    ] = 30,
    layer: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The decoder layer used for alignments, by torch. Default: the one that aligns best.",
        ),
    ] = None,
    log_texts: Annotated[
        bool, typer.Option("--log-texts", help="Also log the texts and their translations.")
    ] = False,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    engine: EngineOption = "auto",
    verbose: VerboseOption = False,
) -> None:
    """Serve translations over HTTP, for programs and as a page for your browser, until Ctrl-C or SIGTERM.

    Requests that arrive at the same time are translated together. Needs the extra "serve".
    """
    show_logs()
    # The threads of the service and its clients compete for the same cores.
    processes.let_threads_look(0)
    with extra("serve", "fastapi", "uvicorn"):
        from mt.serving.app import Service, listen
        from mt.serving.app import serve as serve_app
        from mt.serving.batching import BatchedTranslator
    from mt.run_directory import RunDirectory

    token = None if token_file is None else _read_token(token_file)
    paths = run or [find_run(None).path]
    names = [visible(RunDirectory(path).name) for path in paths]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"clients choose a run by its name: {', '.join(names)}. Rename one of these folders."
        )
    with listen(host, port) as listening:
        address = listening.getsockname()[0]
        is_private = ipaddress.ip_address(address.partition("%")[0]).is_loopback
        if token is None and not is_private:
            LOG.warning(
                "anyone who reaches this machine can use the service; require a token with --token-file FILE"
            )
        runs = []
        for name, path in zip(names, paths, strict=True):
            translator = _load(path, checkpoint, device, precision, engine, layer)
            if verbose:
                LOG.info("%s: %s", name, translator.described)
            align = _aligner(translator, layer)
            runs.append(BatchedTranslator(translator, name, max_waiting=max_queue, align=align))
        # With a token, the host name need not be checked: nobody can use the service without the token.
        is_open = token is not None or not is_private
        hosts = ["*"] if is_open else ["localhost", "127.0.0.1", "[::1]", f"[{address}]", address, host]
        service = Service(runs, max_text, timeout, hosts, token, log_texts)
        serve_app(service.app(), listening)


def _read_token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise DataError(f"the token file {file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise DataError(
            f"the token file {file} must hold one line of visible ASCII characters without spaces."
        )
    return token


def _load(
    path: Path,
    checkpoint: str,
    device: str,
    precision: "PrecisionName",
    engine: str,
    layer: int | None,
) -> "Translator":
    from mt.inference.exported_folder import is_exported
    from mt.inference.translator import Translator

    LOG.info("loading %s", path)
    if is_exported(path):
        check_no_run_options(
            path,
            {
                "--checkpoint": checkpoint != "best",
                "--layer": layer is not None,
                "--engine": engine in ("torch", "mt"),
            },
        )
        return load_exported(path, device, precision)
    if layer is not None:
        if engine == "ctranslate2" or precision not in ("auto", "float32"):
            raise ConfigError("--layer needs torch in float32: leave out --layer, --engine and --precision.")
        engine, precision = "torch", "float32"
    return Translator.from_run(
        find_run(path),
        checkpoint=checkpoint,
        device=device,
        precision=precision,
        engine=engine_name(engine),
    )


def _aligner(translator: "Translator", layer: int | None) -> "Align | None":
    """What aligns words; None if torch translates in another precision than float32."""
    if translator.engine.name != "torch":
        return translator.align
    model = cast("ModelTranslator", translator)
    if model.plain_model is None:
        return None
    from mt.attention_maps.alignment import word_alignments
    from mt.inference.alignment_layer import aligning_layer

    chosen = aligning_layer(model, None if layer is None else layer - 1)
    return lambda source, translations: word_alignments(model, source, translations, chosen)
