"""The base of all sections of the config: frozen, unknown keys refused, docstrings as descriptions."""

from typing import Any

from pydantic import BaseModel, ConfigDict

# Marks a field that does not change the mathematics of a run, and so may differ when the run is resumed.
MAY_CHANGE: dict[str, Any] = {"may_change": True}


class Section(BaseModel):
    """One section of the config. The string below each field is its documentation everywhere."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
