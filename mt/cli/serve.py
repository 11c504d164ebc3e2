"""`mt serve`: translate over HTTP, for programs and in a browser."""

import ipaddress
import logging
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt.cli.extras import extra
from mt.cli.logs import show_logs
from mt.cli.options import CheckpointOption, DeviceOption, PrecisionOption, find_run
from mt.errors import ConfigError, DataError

if TYPE_CHECKING:
    from mt.device import PrecisionName
    from mt.inference.translator import Translator
    from mt.run_directory import RunDirectory
    from mt.serving.batching import Align

LOG = logging.getLogger(__name__)

_MAX_TOKEN_BYTES = 10_000

RunsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--run",
        metavar="PATH",
        help="A run directory; repeat it for several language pairs. Default: the newest run in runs/.",
    ),
]
HostOption = Annotated[
    str,
    typer.Option(metavar="ADDRESS", help="Where to serve; 0.0.0.0 lets other machines in, too."),
]
PortOption = Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 takes a free one.")]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Translate only for those who send the token in this file as bearer token."
    ),
]
MaxTextOption = Annotated[
    int, typer.Option(min=1, metavar="N", help="The most characters of a text; a longer one gets a 422.")
]
MaxQueueOption = Annotated[
    int,
    typer.Option(min=1, metavar="N", help="The most texts that wait; what comes on top of them gets a 429."),
]
TimeoutOption = Annotated[
    int,
    typer.Option(min=1, metavar="SECONDS", help="After this time a request is given up and gets a 503."),
]
LayerOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="The decoder layer to align by. Default: the one that aligns best."
    ),
]
LogTextsOption = Annotated[
    bool, typer.Option("--log-texts", help="Write texts and translations into the log, too.")
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
    precision: PrecisionOption = "float32",
) -> None:
    """Translate over HTTP, for programs and on a page for your browser, until Ctrl-C or SIGTERM.

    Requests that come at the same time are translated together. Needs the extra serve.
    """
    show_logs()
    with extra("serve", "starlette", "uvicorn"):
        from mt.serving.app import Service
        from mt.serving.batching import BatchedTranslator
        from mt.serving.request import Limits, ServedRun
        from mt.serving.server import bind
        from mt.serving.server import serve as serve_app
    token = None if token_file is None else _read_token(token_file)
    runs = [find_run(path) for path in run] if run else [find_run(None)]
    _refuse_equal_names(runs)
    with bind(host, port) as bound, ExitStack() as stack:
        if token is None and not _is_loopback(bound.getsockname()[0]):
            LOG.warning(
                "whoever reaches this machine can use the service; --token-file FILE asks them for a token"
            )
        served: list[ServedRun] = []
        for each in runs:
            translator = _load(each, checkpoint, device, precision)
            align = _aligner(translator, None if layer is None else layer - 1)
            batched = stack.enter_context(BatchedTranslator(translator, max_waiting=max_queue, align=align))
            data = translator.config.data
            served.append(ServedRun(each.path.absolute().name, data.src, data.tgt, checkpoint, batched))
        limits = Limits(max_characters=max_text, max_seconds=timeout)
        service = Service(served, limits, token=token, logs_texts=log_texts)
        serve_app(service.app(), bound, max_seconds=limits.max_seconds)


def _read_token(file: Path) -> str:
    from mt.regular_files import decode_utf8, read_given

    try:
        token = decode_utf8(read_given(file, max_bytes=_MAX_TOKEN_BYTES), file).strip()
    except OSError as error:
        raise DataError(f"the token file {file} cannot be read: {error.strerror}.") from error
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise DataError(
            f"the token file {file} must hold one line of visible ASCII characters without spaces."
        )
    return token


def _refuse_equal_names(runs: "list[RunDirectory]") -> None:
    names = [run.path.absolute().name for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two runs are called {name}, and clients choose a run by its name: rename one folder."
            )


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _load(run: "RunDirectory", checkpoint: str, device: str, precision: "PrecisionName") -> "Translator":
    from mt.device import choose_device
    from mt.inference.translator import Translator

    LOG.info("loading %s", run.path)
    return Translator.from_run(run, checkpoint=checkpoint, device=choose_device(device), precision=precision)


def _aligner(translator: "Translator", layer: int | None) -> "Align | None":
    """What aligns words with the weights of the plain model; None in a precision that has no such model."""
    if translator.plain_model is None:
        return None
    from mt.attention_maps.alignment import aligning_layer, word_alignments

    chosen = aligning_layer(translator, layer)
    return lambda source, translations: word_alignments(translator, source, translations, chosen)
