"""Packages that only some commands need: the extras of the distribution."""

from collections.abc import Iterator
from contextlib import contextmanager

from mt.errors import ConfigError

DISTRIBUTION = "mt-from-scratch"
"""What pip calls this program, because the name mt is taken."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Explain a package that is not installed.

    Args:
        name: Both the extra and the package that is imported.

    Raises:
        ConfigError: If the package is not there.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise
        raise ConfigError(
            f"this needs the package {name}, which is not installed. Install it with mt: "
            f"pip install '{DISTRIBUTION}[{name}]', or in a checkout: pip install -e '.[{name}]'."
        ) from error
