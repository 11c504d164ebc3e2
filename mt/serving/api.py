"""The requests and answers of the service, from which FastAPI derives their checks and `/openapi.json`."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mt.inference.markup.pieces import Format

MOST_TRANSLATIONS = 500


class TranslateRequest(BaseModel):
    """One text or several, how to translate them, and which run to use if several are served."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str | None = None
    texts: list[str] | None = Field(None, min_length=1, max_length=100)
    beam: int = Field(1, ge=1, le=20, description="Beam size; 1 is greedy search.")
    n_best: int = Field(1, ge=1, description="Maximum number of translations of a text; at most beam.")
    alignment: bool = Field(False, description="Whether to align words.")
    format: Format = Field("text", description="What texts are: lines, or pages of HTML or Markdown.")
    join_lines: bool = Field(False, description="Whether line breaks count as spaces, as in wrapped text.")
    run: str | None = None
    src: str | None = None
    tgt: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.text is None) == (self.texts is None):
            raise ValueError("give either text, one string, or texts, a list of strings")
        if self.n_best > self.beam:
            raise ValueError(f"n_best is {self.n_best}, but may be at most beam, which is {self.beam}")
        if self.format != "text" and (self.n_best > 1 or self.alignment):
            raise ValueError(f"with format {self.format} there is one translation, without alignment")
        if (count := len(self.texts or [""]) * self.n_best) > MOST_TRANSLATIONS:
            raise ValueError(f"texts times n_best are {count}, but may be at most {MOST_TRANSLATIONS}")
        return self


class TranslationAnswer(BaseModel):
    """A translation; ``alignment``, if requested, has pairs of a source and a target word, from 0."""

    text: str
    score: float
    log_prob: float
    unknown: list[str] = Field(description="The words of the text that the model does not know.")
    copied: list[str] = Field(description="Those of them that are in the translation.")
    alignment: list[tuple[int, int]] | None = Field(
        default=None, description="null for a text translated in parts."
    )


class Result(BaseModel):
    """A text as it was read, and its translations, the best first."""

    source: str
    translations: list[TranslationAnswer]


class TranslateAnswer(BaseModel):
    """The results of a request, in the order of its texts."""

    run: str
    src: str
    tgt: str
    results: list[Result]


class ErrorResponse(BaseModel):
    """Why a request was not answered, in a sentence."""

    error: str
