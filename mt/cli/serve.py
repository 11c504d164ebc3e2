"""`mt serve`: translate over HTTP, for programs and in a browser."""

import ipaddress
import logging
import re
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from mt import system
from mt.cli import options
from mt.display import visible
from mt.errors import ConfigError, DataError
from mt.run_directory import RunDirectory

LOG = logging.getLogger(__name__)


def serve(
    run: Annotated[
        list[Path] | None,
        options.run_option(help="A run or exported folder, for each language pair. Default: the newest run."),
    ] = None,
    demo: Annotated[
        bool,
        Option(help="Serve the demonstration model that a wheel of mt has, English to German."),
    ] = False,
    host: Annotated[str, Option(help="The address; 0.0.0.0 lets other machines connect.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="The port; 0 chooses a free one.")] = 8000,
    token_file: Annotated[
        Path | None, Option(help="Only accept requests with the bearer token in this file.")
    ] = None,
    max_text: Annotated[
        int, Option(min=1, help="The most characters in a text; longer texts get status 422.")
    ] = 5_000,
    max_queue: Annotated[
        int, Option(min=1, help="The most texts that may wait; further requests get status 429.")
    ] = 1_000,
    timeout: Annotated[
        int, Option(min=1, max=86_400, help="Seconds until a request is given up with status 503.")
    ] = 30,
    allow_origin: Annotated[
        list[str] | None, Option(help="A site whose pages may use the service, such as https://example.org.")
    ] = None,
    log_format: Annotated[
        Literal["text", "json"], Option(help="Log lines to read, or JSON objects for programs.")
    ] = "text",
    log_texts: Annotated[bool, Option(help="Also log the texts and their translations.")] = False,
    checkpoint: options.CheckpointOption = "best",
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "auto",
    engine: options.EngineOption = "auto",
    verbose: options.VerboseOption = False,
) -> None:
    """Serve translations over HTTP, for programs and as a page for your browser, until Ctrl-C or SIGTERM.

    Requests that arrive at the same time are translated together. Needs the extra "serve".
    """
    options.check_excludes("--demo", demo, run=run)
    # The threads of the service and its clients compete for the same cores.
    system.let_threads_look(0)
    with options.installed_with("mt-from-scratch[serve]"):
        from mt.serving.app import Service, listen
        from mt.serving.app import serve as serve_app
        from mt.serving.batching import BatchedTranslator
        from mt.serving.log import LogHandler

    logging.getLogger("mt").handlers = [LogHandler(log_format)]
    token = None if token_file is None else _read_token(token_file)
    if demo and not options.DEMO.is_dir():
        raise ConfigError(
            "there is no demonstration model here: a wheel of mt has one, and scripts/demo makes one in a "
            "checkout."
        )
    paths = [options.DEMO] if demo else run or [options.find_run(None).path]
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
            LOG.info("loading %s", path)
            load = partial(options.load_translator, path, checkpoint, device, precision, engine)
            runs.append(BatchedTranslator(load, name, max_waiting=max_queue))
            if verbose:
                LOG.info("%s: %s", name, runs[-1].translator.described)
        # With a token, the host name need not be checked: nobody can use the service without the token.
        is_open = token is not None or not is_private
        hosts = ["*"] if is_open else ["localhost", "127.0.0.1", "[::1]", f"[{address}]", address, host]
        service = Service(runs, max_text, timeout, hosts, token, log_texts, allow_origin or ())
        serve_app(service, listening)


def _read_token(file: Path) -> str:
    if file.stat().st_mode & 0o077:
        LOG.warning("others can read the token file %s: chmod 600 %s", file, file)
    token = file.read_text(encoding="ascii", errors="replace").strip()
    if not re.fullmatch("[!-~]+", token):
        raise DataError(
            f"the token file {file} must hold one line of visible ASCII characters without spaces."
        )
    return token
