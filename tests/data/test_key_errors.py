"""From a pydantic error to one line."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from panacea.core.validation import validated
from panacea.errors import RequestError


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    depth: int = Field(1, ge=1)


class Keys(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="where the file is")
    split: Literal["iid", "practical"] = "iid"
    rate: float | None = Field(None, gt=0, description="learning rate")
    names: list[int] | str = "a"
    inner: Inner = Inner()

    @field_validator("path")
    @classmethod
    def _short(cls, value: str) -> str:
        if len(value) > 100:
            raise ValueError("is too long")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Keys:
        if self.split == "practical" and self.rate == 1:
            raise ValueError("split=practical does not go with rate=1")
        return self


GOOD = {"path": "p"}


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({}, "data.path is missing: where the file is"),
        (
            {**GOOD, "rat": 1},
            "unknown key 'data.rat'; did you mean 'data.rate'? allowed: inner, names, path, rate, split",
        ),
        ({"pth": "p"}, "unknown key 'data.pth'; did you mean 'data.path'? allowed: inner, names, path, rate, split"),
        ({**GOOD, "zzz": 1}, "unknown key 'data.zzz'; allowed: inner, names, path, rate, split"),
        ({**GOOD, "rate": 0}, "data.rate=0: must be greater than 0"),
        ({**GOOD, "rate": "fast"}, "data.rate=fast: must be a valid number"),
        ({**GOOD, "rate": ""}, "data.rate='': must be a valid number"),
        ({**GOOD, "split": "idi"}, "data.split=idi: must be 'iid' or 'practical'; did you mean 'iid'?"),
        ({**GOOD, "split": "q"}, "data.split=q: must be 'iid' or 'practical'"),
        ({"path": "x" * 101}, f"data.path={'x' * 57}...: is too long"),
        ({**GOOD, "inner": {"depth": 0}}, "data.inner.depth=0: must be greater than or equal to 1"),
        (
            {**GOOD, "inner": {"dept": 2}},
            "unknown key 'data.inner.dept'; did you mean 'data.inner.depth'? allowed: depth",
        ),
        ({**GOOD, "names": 3}, "data.names=3: must be a valid list or must be a valid string"),
        ({**GOOD, "names": ["a"]}, "data.names.0=a: must be a valid integer"),
        ({**GOOD, "split": "practical", "rate": 1}, "data: split=practical does not go with rate=1"),
    ],
)
def test_lines(values: dict[str, object], line: str) -> None:
    with pytest.raises(RequestError) as caught:
        validated(Keys, values, "data")
    assert str(caught.value) == line


def test_prefixes() -> None:
    for prefix, line in (("", "rate=0: must"), ("task.yaml: ", "task.yaml: rate=0: must"), ("a.b", "a.b.rate=0: must")):
        with pytest.raises(RequestError) as caught:
            validated(Keys, {**GOOD, "rate": 0}, prefix)
        assert str(caught.value).startswith(line)
    assert validated(Keys, {**GOOD, "rate": "0.5"}, "data").rate == 0.5
