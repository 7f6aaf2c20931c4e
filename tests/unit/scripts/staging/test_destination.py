"""Source and destination the way a person writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from budget.problems import BadInput
from scripts.staging.destination import Origin, bucket_of
from tests.aws.made_models import model_files, write


@pytest.mark.parametrize("text", ["s3://weights", "s3://weights/", "s3://weights/models", "s3://weights/models/"])
def test_a_bucket_with_or_without_the_prefix_of_models(text: str) -> None:
    assert bucket_of(text) == "weights"


@pytest.mark.parametrize("text", ["weights", "s3://", "s3://w", "s3://We/models", "gs://weights", "s3:///models"])
def test_what_is_no_bucket(text: str) -> None:
    with pytest.raises(BadInput, match="is not a bucket"):
        bucket_of(text)


def test_a_place_where_no_deployment_looks() -> None:
    with pytest.raises(BadInput, match="names a place of its own"):
        bucket_of("s3://weights/mine")


@pytest.mark.parametrize(
    ("source", "name", "said"),
    [
        ("hf:org/name", None, "names no revision"),
        ("hf:name@main", None, "'name' is not of the form ORG/NAME"),
        ("hf:org/name@", None, "names no revision"),
        ("hf:org/name@main", "other/name", "the hub's model has a name"),
        ("/somewhere", None, "a folder has no name of its own"),
        ("/nowhere-at-all", "org/name", "is not a folder"),
    ],
)
def test_a_source_that_cannot_be(source: str, name: str | None, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Origin(source=source, name=name).open()


def test_a_folder_opens(tmp_path: Path) -> None:
    source = Origin(source=str(write(tmp_path, model_files())), name="org/tuned").open()
    assert source.name == "org/tuned"


def test_the_hubs_name_is_read_from_the_source() -> None:
    assert Origin(source="hf:org/name@main").hub_name == "org/name"
    assert Origin(source="/folder", name="org/tuned").hub_name == "org/tuned"
