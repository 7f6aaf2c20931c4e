"""Words for what is wrong with an input."""

from __future__ import annotations

import pytest

from budget.problems import MOST_NAMES, BadInput, did_you_mean

NAMES = [f"g{number:02d}.xlarge" for number in range(MOST_NAMES + 3)]


def test_a_near_miss_is_answered_with_what_was_meant() -> None:
    assert did_you_mean("g01.xlage", NAMES).startswith("Did you mean g01.xlarge")


def test_a_name_like_no_other_is_answered_with_what_there_is() -> None:
    assert did_you_mean("zzz", NAMES[:2]) == "Known: g00.xlarge, g01.xlarge."


def test_a_list_ends_where_nobody_would_read_on() -> None:
    said = did_you_mean("zzz", NAMES)
    assert said.endswith(f"{NAMES[MOST_NAMES - 1]}, and 3 more.")
    assert NAMES[MOST_NAMES] not in said


def test_bad_input_without_a_problem_is_a_fault_of_ours() -> None:
    with pytest.raises(ValueError, match="at least one problem"):
        BadInput([])
