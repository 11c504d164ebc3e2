"""Experiment trackers: each gets each point of the curves once, however often the run is resumed."""

import json
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from mt.config.config import Config
from mt.config.write import fixed_options
from mt.display import one_line
from mt.errors import ConfigError
from mt.files import read_json_lines, write_atomically
from mt.run_directory import RunDirectory
from mt.training.metrics_file import Point

LOG = logging.getLogger(__name__)
# In a point of the file, beside its metrics.
_COUNTS = ("epoch", "num_target_tokens", "minutes")


# The id of a run of a tracker, and what sends metrics to it and ends it.
Connection = tuple[str, Callable[[dict[str, float], int], object], Callable[[], object]]


def check_trackers(config: Config) -> None:
    """Check that the packages of ``training.report_to`` are installed."""
    for name in config.training.trackers:
        if find_spec(name) is None:
            raise ConfigError(
                f"training.report_to: {name} is not installed. Install it with pip install {name}, or "
                "leave it out."
            )


class Trackers(ExitStack):
    """Sends metrics to the trackers of a run, as an `OnMetrics`; one that fails is left out, with a warning.

    ``trackers.json`` has the id of the run there and the last step of each kind that was sent. A step is
    recorded before it is sent: a kill between the two costs one point, and never sends a step twice.
    """

    def __init__(self, run: RunDirectory, config: Config, points: Iterable[Point]) -> None:
        """Connect, and send those of the ``points`` so far that were never sent."""
        super().__init__()
        self._run, self._config = run, config
        # A copy of a run is another one.
        records = [each for each in read_json_lines(run.trackers_file) if each.get("run") == run.name]
        self._record: dict[str, Any] = records[-1] if records else {"run": run.name}
        self._connections: dict[str, Connection] = {}
        self._failed: set[str] = set()
        for name in config.training.trackers:
            self._try(name, self._connect, name)
        for point in points:
            figures = {f"{point.kind}/{name}": value for name, value in point.figures.items()}
            for count in _COUNTS:
                figures.pop(f"{point.kind}/{count}", None)
            self(point.step, figures)

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of one kind at a step to each tracker that does not have them yet."""
        kind = next(iter(metrics)).partition("/")[0]
        for name in [*self._connections]:
            if step > self._record[name].get(kind, 0):
                self._record[name][kind] = step
                self._try(name, self._send, name, dict(metrics), step)

    def _send(self, name: str, metrics: dict[str, float], step: int) -> None:
        self._save()
        _, log, _ = self._connections[name]
        log(metrics, step)

    def _try(self, name: str, action: Callable[..., object], *arguments: object) -> None:
        try:
            action(*arguments)
        except Exception as error:
            self._connections.pop(name, None)
            what = one_line(f"{type(error).__name__}: {error}")
            if name not in self._failed:
                LOG.warning("%s gets no more metrics until the run is resumed: %s", name, what)
            self._failed.add(name)

    def _connect(self, name: str) -> None:
        known = self._record.setdefault(name, {})
        self._connections[name] = _CONNECT[name](self._run, self._config, known.get("id"))
        known["id"], _, finish = self._connections[name]
        self.callback(self._try, name, finish)
        self._save()

    def _save(self) -> None:
        write_atomically(self._run.trackers_file, json.dumps(self._record) + "\n")


def _project(run: RunDirectory, variable: str) -> str:
    """The user's project, or that of all runs in the same folder."""
    return os.environ.get(variable) or run.path.absolute().parent.name


def _wandb(run: RunDirectory, config: Config, known: str | None) -> Connection:
    session = import_module("wandb").init(
        project=_project(run, "WANDB_PROJECT"),
        name=run.name,
        id=known or secrets.token_hex(4),
        resume="allow",
        dir=str(run.path),
        config=config.model_dump(),
    )
    return session.id, session.log, session.finish


def _mlflow(run: RunDirectory, config: Config, known: str | None) -> Connection:
    mlflow = import_module("mlflow")
    mlflow.set_experiment(_project(run, "MLFLOW_EXPERIMENT_NAME"))
    session = mlflow.start_run(run_id=known, run_name=run.name)
    if known is None:
        mlflow.log_params(fixed_options(config))
    return session.info.run_id, mlflow.log_metrics, mlflow.end_run


def _trackio(run: RunDirectory, config: Config, known: str | None) -> Connection:
    trackio = import_module("trackio")
    # Its name is its id.
    name = known or f"{run.name}-{secrets.token_hex(4)}"
    project = _project(run, "TRACKIO_PROJECT")
    trackio.init(project=project, name=name, resume="allow", config=config.model_dump())
    return name, trackio.log, trackio.finish


_CONNECT = {"wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio}
