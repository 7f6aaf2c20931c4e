"""Changing tags: every service of AWS has a way of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.standin.cloud import Cloud
from tests.standin.faults import ServiceError

Tags = Mapping[str, str]
Change = Callable[[Cloud, str, str, Tags, list[str]], None]
"""Takes the cloud, the resource's id and ARN, all its tags from now on, and the keys that are gone."""


def change_tags(service: str, cloud: Cloud, resource_id: str, arn: str, tags: Tags, gone: list[str]) -> None:
    """Sets all tags of a resource.

    Raises:
        ServiceError: of a service that isn't in the table.
    """
    if service not in _CHANGES:
        raise ServiceError(f"the stand-in has no way to change tags in {service}")
    _CHANGES[service](cloud, resource_id, arn, tags, gone)


def _ec2(cloud: Cloud, resource_id: str, _arn: str, tags: Tags, gone: list[str]) -> None:
    cloud.call("ec2.CreateTags", {"Resources": [resource_id], "Tags": _listed(tags)})
    if gone:
        cloud.call("ec2.DeleteTags", {"Resources": [resource_id], "Tags": [{"Key": key} for key in gone]})


def _iam(cloud: Cloud, resource_id: str, _arn: str, tags: Tags, gone: list[str]) -> None:
    cloud.call("iam.TagRole", {"RoleName": resource_id, "Tags": _listed(tags)})
    if gone:
        cloud.call("iam.UntagRole", {"RoleName": resource_id, "TagKeys": gone})


def _s3(cloud: Cloud, resource_id: str, _arn: str, tags: Tags, _gone: list[str]) -> None:
    cloud.call("s3.PutBucketTagging", {"Bucket": resource_id, "Tagging": {"TagSet": _listed(tags)}})


def _eks(cloud: Cloud, _id: str, arn: str, tags: Tags, gone: list[str]) -> None:
    # moto finds clusters by their ARN, and nothing else of EKS: the records know the tags of the others.
    cloud.find("eks.TagResource", {"resourceArn": arn, "tags": dict(tags)})
    if gone:
        cloud.find("eks.UntagResource", {"resourceArn": arn, "tagKeys": gone})


def _logs(cloud: Cloud, _id: str, arn: str, tags: Tags, gone: list[str]) -> None:
    cloud.call("logs.TagResource", {"resourceArn": arn, "tags": dict(tags)})
    if gone:
        cloud.call("logs.UntagResource", {"resourceArn": arn, "tagKeys": gone})


def _scheduler(cloud: Cloud, _id: str, arn: str, tags: Tags, gone: list[str]) -> None:
    cloud.call("scheduler.TagResource", {"ResourceArn": arn, "Tags": _listed(tags)})
    if gone:
        cloud.call("scheduler.UntagResource", {"ResourceArn": arn, "TagKeys": gone})


def _listed(tags: Tags) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


_CHANGES: Mapping[str, Change] = {
    "ec2": _ec2,
    "eks": _eks,
    "iam": _iam,
    "logs": _logs,
    "s3": _s3,
    "scheduler": _scheduler,
}
