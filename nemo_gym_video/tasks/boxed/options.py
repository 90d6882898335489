# SPDX-License-Identifier: Apache-2.0
"""The fields of a multiple-choice row, checked when the row is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    SkipValidation,
    StrictStr,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.validation import refusal, row_errors

GradingMode = Literal["strict_single_letter_boxed", "lenient_boxed"]
GRADING_MODES: tuple[str, ...] = get_args(GradingMode)
LETTERS = "ABCDEFGHIJ"
_LETTERS = frozenset(LETTERS)


def _option(value: Any) -> tuple[str, str]:
    if type(value) is dict and len(value) == 1:
        ((letter, text),) = value.items()
        if type(text) is str and letter in _LETTERS:
            return letter, text
    raise refusal("option does not fit", allowed='{"A": "text"}, letters A to J')


_OPTIONS = TypeAdapter(Annotated[list[Annotated[Any, PlainValidator(_option)]], Field(min_length=2)])


def _by_letter(given: Any) -> Mapping[str, str]:
    options: dict[str, str] = {}
    for place, (letter, text) in enumerate(_OPTIONS.validate_python(given)):
        if letter in options:
            raise refusal("option letter repeats", field=f"[{place}]", got=letter, allowed="each letter once")
        options[letter] = text
    return options


Options = Annotated[
    Mapping[str, str],
    PlainValidator(_by_letter, json_schema_input_type=Annotated[list[dict[str, str]], Field(min_length=2)]),
]
"""Option texts by letter; in the row a list of objects with one key each, so that their order is kept."""


class BoxedRow(BaseModel):
    """Option texts by letter in their order, the right letter, and the row's own grading mode if it has one."""

    model_config = ConfigDict(frozen=True)

    options: Options = Field(
        description="Options in their order, each an object with one key: a letter A to J, its text."
    )
    expected_answer: StrictStr = Field(description="The right option's letter.", min_length=1, max_length=1)
    grading_mode: GradingMode | None = Field(default=None, description="Overrides the server's grading mode.")
    metadata: SkipValidation[dict[str, Any] | None] = Field(
        default=None, description="Where the row comes from.", repr=False
    )

    @field_validator("expected_answer", mode="before")
    @classmethod
    def _is_an_option(cls, value: object, info: ValidationInfo) -> object:
        options = info.data.get("options")
        if options and isinstance(value, str) and value not in options:
            raise refusal("expected_answer is not one of the options", allowed=" ".join(options))
        return value


def boxed_row(row: object, *, where: Where | None = None) -> BoxedRow:
    """Read ``options``, ``expected_answer`` and ``grading_mode`` from the top level of a row.

    Raises:
        RowError: the first problem of the row.
    """
    try:
        return BoxedRow.model_validate(row)
    except ValidationError as error:
        raise row_errors(error, where)[0] from error


def check_boxed_row(row: object, *, where: Where | None = None) -> tuple[BoxedRow | None, list[RowError]]:
    """The row, or ``None`` and everything that is wrong with it."""
    try:
        return BoxedRow.model_validate(row), []
    except ValidationError as error:
        return None, row_errors(error, where)
