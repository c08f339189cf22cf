"""How a field of a section is written down: its sentence, unit and bounds."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

CONFIG = ConfigDict(extra="forbid")  # of every section


def setting(about: str, *, unit: str = "", form: str = "", **bounds: Any) -> Any:
    """A pydantic field with its sentence and, where not obvious, its unit, or the form that a pattern asks for."""
    return Field(description=about, json_schema_extra={"unit": unit, "form": form}, **bounds)


Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Above0 = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
# Of things that are added up or compared; a sum of larger ones may be infinite, and infinity less infinity no number.
Weight = Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)]
