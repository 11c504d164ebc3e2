"""Freezing weights: they keep their values, and the optimizer has no state for them."""

import logging
from fnmatch import fnmatchcase

from mt.errors import ConfigError
from mt.transformer.transformer import Transformer

LOG = logging.getLogger(__name__)


def freeze(model: Transformer, patterns: str | None) -> None:
    """Freeze the parameters of which any name matches one of ``patterns``, and log what is trained."""
    if patterns is None:
        return
    named = list(model.named_parameters(remove_duplicate=False))
    for pattern in (pattern.strip() for pattern in patterns.split(",")):
        frozen = [parameter for name, parameter in named if fnmatchcase(name, pattern)]
        if not frozen:
            parts = ", ".join(sorted({f"{name.partition('.')[0]}.*" for name, _ in named}))
            raise ConfigError(
                f"training.freeze: no weight has a name like {pattern}. Those of whole parts are {parts}."
            )
        for parameter in frozen:
            parameter.requires_grad_(False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise ConfigError(f"training.freeze: {patterns} freezes all weights, so that nothing would learn.")
    number = sum(parameter.numel() for parameter in trained)
    total = sum(parameter.numel() for parameter in model.parameters())
    LOG.info("%s of %s weights are trained", f"{number:,}", f"{total:,}")
