"""ECR repositories. One that a pull-through rule made carries no tags, but its name begins with the rule's prefix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict

from scripts.account import dollars
from scripts.account.found import Facts, Kind
from scripts.account.ownership import Owners, Verdict, tags_of
from scripts.account.session import Clients

if TYPE_CHECKING:
    from mypy_boto3_ecr.type_defs import RepositoryTypeDef

PREFIX = "coldstart-{}"
"""First part of the name of every repository of an environment, and the prefix of its pull-through rules."""


class Tagged(TypedDict):
    """A repository with its tags, which have to be asked for one by one."""

    repository: RepositoryTypeDef
    tags: dict[str, str]


def _listed(clients: Clients) -> Iterator[Tagged]:
    for page in clients.ecr.get_paginator("describe_repositories").paginate():
        for repository in page["repositories"]:
            answer = clients.ecr.list_tags_for_resource(resourceArn=repository.get("repositoryArn", ""))
            yield Tagged(repository=repository, tags=tags_of(answer["tags"]))


def _verdict(tagged: Tagged, owners: Owners) -> Verdict:
    prefix, slash, _ = tagged["repository"].get("repositoryName", "").partition("/")
    by_name = owners.by_name(prefix, PREFIX) if slash else None
    return owners.first(owners.by_tags(tagged["tags"]), by_name)


def _facts(tagged: Tagged, clients: Clients) -> Facts:
    name = tagged["repository"].get("repositoryName", "")
    size, images = 0, 0
    for page in clients.ecr.get_paginator("describe_images").paginate(repositoryName=name):
        images += len(page["imageDetails"])
        size += sum(image.get("imageSizeInBytes", 0) for image in page["imageDetails"])
    return Facts(
        id=name,
        detail=f"{images} images, {dollars.in_gb(size)}",
        created=tagged["repository"].get("createdAt"),
        price=dollars.stored("ecr_usd_per_gb_month", size, "at most: layers that images share bill once"),
        remove=f"ecr delete-repository --force --repository-name {name}",
    )


KIND = Kind(
    name="ECR repository",
    rule="tags, or named coldstart-<environment>/..., as pull-through rules do",
    actions=("ecr:DescribeRepositories", "ecr:DescribeImages", "ecr:ListTagsForResource"),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
)
