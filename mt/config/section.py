"""The base of all sections of the config, and the types of their fields."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int | None, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
# Torch takes such numbers in float32, and Muon multiplies the learning rate by the square root of the width.
Weight = Annotated[float, Field(ge=0, lt=1e35)]
Text = Annotated[str, Field(min_length=1)]
TextOrNone = Annotated[str | None, Field(min_length=1)]


class Section(BaseModel):
    """One section, frozen; the string below each field is its documentation everywhere."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    def __hash__(self) -> int:
        """Also of a section with a mapping, which has no hash of its own."""
        return hash(repr(self))


def may_change(schema: dict[str, Any]) -> None:
    """Marks a field that does not change the mathematics of a run, as its ``json_schema_extra``."""
    schema["description"] += " May change when a run is resumed."


def changeable(default: object, **bounds: Any) -> Any:
    """Such a field; it is required if its default is ``...``."""
    return Field(default, json_schema_extra=may_change, **bounds)
