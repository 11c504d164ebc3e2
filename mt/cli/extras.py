"""Packages that only some commands need, which are installed as extras."""

from collections.abc import Iterator
from contextlib import contextmanager

from mt.errors import ConfigError

DISTRIBUTION = "mt-from-scratch"
"""What pip calls this program, because the name mt is taken."""


@contextmanager
def extra(name: str, *packages: str) -> Iterator[None]:
    """Explain that one of ``packages`` of this extra is missing, by default the one with its name."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in (packages or (name,)):
            raise
        raise missing_package(missing, name) from error


def missing_package(package: str, extra: str) -> ConfigError:
    """The error of a command that needs ``package``, which is part of ``extra``, or of mt where it can be."""
    if package == "ctranslate2":
        return ConfigError("this needs the package ctranslate2: pip install ctranslate2.")
    return ConfigError(
        f"this needs the package {package}, which is not installed. Install it with mt: "
        f"pip install '{DISTRIBUTION}[{extra}]', or in a checkout: pip install -e '.[{extra}]'."
    )
