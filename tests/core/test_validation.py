"""One line for a user, from whatever pydantic found."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from panacea.core.validation import validated
from panacea.errors import RequestError


class Rates(BaseModel):
    model_config = ConfigDict(extra="forbid")
    first: float = 0.1
    second: int | Literal["auto"] = "auto"


class Keys(BaseModel):
    model_config = ConfigDict(extra="forbid")
    clients: int = Field(6, ge=1)
    scheme: Literal["dirichlet", "shards"] = "shards"
    rates: Rates = Rates()
    parts: list[int] = []
    root: str = Field(description="folder of the data")

    @field_validator("root")
    @classmethod
    def _not_empty(cls, value: str) -> str:
        if value == "nowhere":
            raise ValueError("there is no such folder")
        return value


def message(values: dict[str, object], prefix: str = "data") -> str:
    with pytest.raises(RequestError) as caught:
        validated(Keys, {"root": "here", **values}, prefix)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_good_values_are_returned_typed():
    found = validated(Keys, {"clients": "7", "root": "x", "rates": {"first": 1}}, "data")
    assert (found.clients, found.rates.first, found.scheme) == (7, 1.0, "shards")


def test_an_unknown_key_comes_first_with_the_nearest_known_one():
    assert message({"clinets": 3, "clients": 0}) == (
        "unknown key 'data.clinets'; did you mean 'data.clients'? allowed: clients, parts, rates, root, scheme"
    )
    assert message({"qqqq": 3}) == "unknown key 'data.qqqq'; allowed: clients, parts, rates, root, scheme"
    assert message({"rates": {"frist": 1}}) == (
        "unknown key 'data.rates.frist'; did you mean 'data.rates.first'? allowed: first, second"
    )


def test_a_wrong_value_is_shown_with_what_is_allowed():
    assert message({"clients": 0}) == "data.clients=0: must be greater than or equal to 1"
    assert message({"clients": "many"}) == "data.clients=many: must be a valid integer"
    assert message({"scheme": "shard"}) == (
        "data.scheme=shard: must be 'dirichlet' or 'shards'; did you mean 'shards'?"
    )
    assert message({"root": "nowhere"}) == "data.root=nowhere: there is no such folder"
    assert message({"rates": {"first": "x"}}).startswith("data.rates.first=x: must be a valid number")
    assert message({"parts": [1, "b"]}).startswith("data.parts.1=b: must be a valid integer")


def test_every_branch_of_a_union_is_named():
    said = message({"rates": {"second": "never"}})
    assert said == "data.rates.second=never: must be a valid integer or must be 'auto'"


def test_a_missing_key_is_described():
    with pytest.raises(RequestError, match=r"^data\.root is missing: folder of the data$"):
        validated(Keys, {}, "data")


def test_a_long_value_is_cut():
    said = message({"clients": "x" * 200})
    assert said.startswith("data.clients=xxx")
    assert "..." in said
    assert len(said) < 120


@pytest.mark.parametrize(("prefix", "shown"), [("", "clients=0"), ("task.yaml: ", "task.yaml: clients=0")])
def test_prefixes(prefix: str, shown: str):
    assert message({"clients": 0}, prefix).startswith(shown)
