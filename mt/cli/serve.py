"""`mt serve`: translate over HTTP, for programs and in a browser."""

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, cast

import typer

from mt import processes
from mt.cli.exported import load_exported, refuse_options_of_runs
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
from mt.files import read_text

if TYPE_CHECKING:
    from mt.device import PrecisionName
    from mt.inference.model_translator import ModelTranslator
    from mt.inference.text_search import TextSearch
    from mt.serving.batching import Align

LOG = logging.getLogger(__name__)

_MAX_TOKEN_BYTES = 10_000

RunsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--run",
        metavar="PATH",
        help="A run directory, or a folder of mt export --to ctranslate2; repeat it for several language "
        "pairs. Default: the newest run in runs/.",
    ),
]
HostOption = Annotated[
    str,
    typer.Option(metavar="ADDRESS", help="The address to listen on; 0.0.0.0 lets other machines connect."),
]
PortOption = Annotated[
    int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 chooses a free one.")
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Only accept requests with the token in this file as bearer token."),
]
MaxTextOption = Annotated[
    int, typer.Option(min=1, metavar="N", help="The most characters in a text; longer texts get status 422.")
]
MaxQueueOption = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="The most texts that may wait behind others; further requests get status 429.",
    ),
]
TimeoutOption = Annotated[
    int,
    typer.Option(
        min=1, max=86_400, metavar="SECONDS", help="Give up on a request after this time, with status 503."
    ),
]
LayerOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="The decoder layer used for alignments. Default: the one that aligns best."
    ),
]
LogTextsOption = Annotated[
    bool, typer.Option("--log-texts", help="Also log the texts and their translations.")
]


def serve(
    run: RunsOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    token_file: TokenFileOption = None,
    max_text: MaxTextOption = 5_000,
    max_queue: MaxQueueOption = 1_000,
    timeout: TimeoutOption = 30,
    layer: LayerOption = None,
    log_texts: LogTextsOption = False,
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
    with extra("serve", "starlette", "uvicorn"):
        from mt.serving.app import Service
        from mt.serving.batching import BatchedTranslator
        from mt.serving.request import Limits, ServedRun
        from mt.serving.server import bind, loopback_names
        from mt.serving.server import serve as serve_app
    token = None if token_file is None else _read_token(token_file)
    paths = run or [find_run(None).path]
    _refuse_equal_names(paths)
    with bind(host, port) as bound, ExitStack() as stack:
        names = loopback_names(bound, host)
        if token is None and names is None:
            LOG.warning(
                "anyone who reaches this machine can use the service; require a token with --token-file FILE"
            )
        served: list[ServedRun] = []
        for path in paths:
            loaded = _load(path, checkpoint, device, precision, layer, engine)
            if verbose:
                LOG.info("%s: %s", _name(path), loaded.translator.described)
            batched = stack.enter_context(
                BatchedTranslator(loaded.translator, max_waiting=max_queue, align=loaded.align)
            )
            served.append(ServedRun(_name(path), loaded.src, loaded.tgt, loaded.checkpoint, batched))
        limits = Limits(max_characters=max_text, max_seconds=timeout)
        # With a token, the host name need not be checked: nobody can use the service without the token.
        hosts = names if token is None else None
        service = Service(served, limits, hosts=hosts, token=token, logs_texts=log_texts)
        serve_app(service.app(), bound, max_seconds=limits.max_seconds)


def _read_token(file: Path) -> str:

    try:
        token = read_text(file, max_bytes=_MAX_TOKEN_BYTES).strip()
    except OSError as error:
        raise DataError(f"the token file {file} cannot be read: {error.strerror}.") from error
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise DataError(
            f"the token file {file} must hold one line of visible ASCII characters without spaces."
        )
    return token


def _refuse_equal_names(paths: list[Path]) -> None:
    names = [_name(path) for path in paths]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two runs are called {name}, and clients choose a run by its name: rename one folder."
            )


def _name(path: Path) -> str:
    """The name by which clients choose a run: that of its folder, as JSON can hold it."""
    from mt.run_directory import RunDirectory

    return visible(RunDirectory(path).name)


class _Loaded(NamedTuple):
    """A run or an exported folder, ready to be served."""

    translator: "TextSearch"
    align: "Align | None"
    src: str
    tgt: str
    checkpoint: str


def _load(
    path: Path, checkpoint: str, device: str, precision: "PrecisionName", layer: int | None, engine: str
) -> _Loaded:
    from mt.inference.exported_folder import is_exported, read_export_record

    LOG.info("loading %s", path)
    if is_exported(path):
        refuse_options_of_runs(
            path,
            {
                "--checkpoint": checkpoint != "best",
                "--layer": layer is not None,
                "--engine": engine in ("torch", "mt"),
            },
        )
        record = read_export_record(path)
        translator = load_exported(path, device, precision)
        return _Loaded(translator, translator.align, record.src, record.tgt, record.checkpoint)
    from mt.inference.translator import Translator

    if layer is not None and engine == "auto":
        # Only torch has all layers.
        engine = "torch"
    if layer is not None and precision == "auto":
        # And it has them in float32 alone.
        precision = "float32"
    translator = Translator.from_run(
        find_run(path),
        checkpoint=checkpoint,
        device=device,
        precision=precision,
        engine=engine_name(engine),
    )
    if translator.engine.name == "torch":
        align = _aligner(cast("ModelTranslator", translator), None if layer is None else layer - 1)
    elif layer is not None:
        raise ConfigError("--layer needs torch: leave out --layer or --engine.")
    else:
        align = translator.align
    return _Loaded(translator, align, translator.src, translator.tgt, translator.checkpoint)


def _aligner(translator: "ModelTranslator", layer: int | None) -> "Align | None":
    """What aligns words with the weights of the plain model; None in a precision that has no such model."""
    if translator.plain_model is None:
        if layer is not None:
            raise ConfigError(
                "--layer is for word alignment, which needs float32: leave out --layer or --precision."
            )
        return None
    from mt.attention_maps.alignment import word_alignments
    from mt.inference.alignment_layer import aligning_layer

    chosen = aligning_layer(translator, layer)
    return lambda source, translations: word_alignments(translator, source, translations, chosen)
