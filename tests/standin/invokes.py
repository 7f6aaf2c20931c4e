"""Data sources: what the program asks the provider without declaring anything."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.standin.faults import ServiceError
from tests.standin.resources import World
from tests.standin.wire import Properties

Answer = Callable[[World, Properties], Properties]

BOTTLEROCKET = re.compile(
    r"/aws/service/bottlerocket/aws-k8s-(?P<kubernetes>1\.\d+)(?P<nvidia>-nvidia)?(?P<fips>-fips)?"
    r"/(?P<arch>x86_64|arm64)/(?P<release>latest|\d+\.\d+\.\d+)/(?P<what>image_version|image_id)"
)
NEWEST_BOTTLEROCKET = "1.69.0"
OLDEST_KEPT_BOTTLEROCKET = "1.40.0"
KUBERNETES_WITH_BOTTLEROCKET = ("1.33", "1.34", "1.35", "1.36", "1.37")


class UnknownFunctionError(LookupError):
    """A data source that the stand-in does not know."""

    def __init__(self, token: str) -> None:
        super().__init__(f"the stand-in does not know the function {token}. Known: {', '.join(sorted(FUNCTIONS))}")


def invoke(token: str, world: World, arguments: Properties) -> Properties:
    """Answers a data source.

    Raises:
        UnknownFunctionError: not one of FUNCTIONS.
        ServiceError: the service says no.
    """
    if token not in FUNCTIONS:
        raise UnknownFunctionError(token)
    return FUNCTIONS[token](world, arguments)


def caller_identity(world: World, _arguments: Properties) -> Properties:
    """Who is asking."""
    found = world.cloud.call("sts.GetCallerIdentity", {})
    return {"accountId": found["Account"], "arn": found["Arn"], "id": found["Account"], "userId": found["UserId"]}


def partition(world: World, _arguments: Properties) -> Properties:
    """The partition of the provider's region."""
    name = world.cloud.partition
    suffix = "amazonaws.com.cn" if name == "aws-cn" else "amazonaws.com"
    return {
        "id": name,
        "partition": name,
        "dnsSuffix": suffix,
        "reverseDnsPrefix": ".".join(reversed(suffix.split("."))),
    }


def region(world: World, arguments: Properties) -> Properties:
    """The provider's region."""
    name = arguments.get("region") or arguments.get("name") or world.cloud.region
    return {"id": name, "name": name, "region": name, "description": name, "endpoint": f"ec2.{name}.amazonaws.com"}


def availability_zones(world: World, arguments: Properties) -> Properties:
    """Zones of the region, by state and filters."""
    request: dict[str, Any] = {"Filters": _filters(arguments)}
    if "state" in arguments:
        request["Filters"].append({"Name": "state", "Values": [arguments["state"]]})
    zones = world.cloud.call("ec2.DescribeAvailabilityZones", request)["AvailabilityZones"]
    left_out = {*arguments.get("excludeNames", []), *arguments.get("excludeZoneIds", [])}
    kept = [zone for zone in zones if not left_out & {zone["ZoneName"], zone["ZoneId"]}]
    return {
        "id": world.cloud.region,
        "region": world.cloud.region,
        "names": [zone["ZoneName"] for zone in kept],
        "zoneIds": [zone["ZoneId"] for zone in kept],
        "groupNames": [world.cloud.region],
    }


def instance_type_offerings(world: World, arguments: Properties) -> Properties:
    """Where instance types are offered."""
    request: dict[str, Any] = {"Filters": _filters(arguments)}
    if "locationType" in arguments:
        request["LocationType"] = arguments["locationType"]
    found = world.cloud.call("ec2.DescribeInstanceTypeOfferings", request)["InstanceTypeOfferings"]
    return {
        "id": world.cloud.region,
        "region": world.cloud.region,
        "instanceTypes": [offering["InstanceType"] for offering in found],
        "locations": [offering["Location"] for offering in found],
        "locationTypes": [offering["LocationType"] for offering in found],
    }


def tagged_resources(world: World, arguments: Properties) -> Properties:
    """Resources by tag, as the Resource Groups Tagging API finds them."""
    filters = [
        {"Key": entry["key"]} | ({"Values": entry["values"]} if entry.get("values") else {})
        for entry in arguments.get("tagFilters", [])
    ]
    request: dict[str, Any] = {"TagFilters": filters} if filters else {}
    if "resourceTypeFilters" in arguments:
        request["ResourceTypeFilters"] = arguments["resourceTypeFilters"]
    if "resourceArnLists" in arguments:
        request["ResourceARNList"] = arguments["resourceArnLists"]
    found = world.cloud.call("resourcegroupstaggingapi.GetResources", request)["ResourceTagMappingList"]
    return {
        "id": world.cloud.region,
        "region": world.cloud.region,
        "resourceTagMappingLists": [
            {
                "resourceArn": entry["ResourceARN"],
                "tags": {tag["Key"]: tag["Value"] for tag in entry["Tags"]},
                "complianceDetails": [],
            }
            for entry in found
        ],
    }


def parameter(world: World, arguments: Properties) -> Properties:
    """A public SSM parameter of Bottlerocket; nothing else is kept there.

    A build number is the release's own and can't be known here: it is made of the release, so it's always the same.
    """
    name = arguments["name"]
    found = BOTTLEROCKET.fullmatch(name)
    release = found and (NEWEST_BOTTLEROCKET if found["release"] == "latest" else found["release"])
    if (
        found is None
        or release is None
        or found["kubernetes"] not in KUBERNETES_WITH_BOTTLEROCKET
        or not _numbers(OLDEST_KEPT_BOTTLEROCKET) <= _numbers(release) <= _numbers(NEWEST_BOTTLEROCKET)
    ):
        raise ServiceError(f"reading SSM Parameter ({name}): couldn't find resource")
    build = hashlib.sha256(release.encode()).hexdigest()[:8]
    value = f"{release}-{build}" if found["what"] == "image_version" else f"ami-{build * 2}0"
    arn = f"arn:{world.cloud.partition}:ssm:{world.cloud.region}::parameter{name}"
    return {
        "id": name,
        "name": name,
        "arn": arn,
        "type": "String",
        "value": value,
        "insecureValue": value,
        "version": 1,
    }


def objects(world: World, arguments: Properties) -> Properties:
    """Keys of a bucket under a prefix."""
    request = {"Bucket": arguments["bucket"], "Prefix": arguments.get("prefix", "")}
    found = world.cloud.call("s3.ListObjectsV2", request | {"MaxKeys": int(arguments.get("maxKeys", 1000))})
    return {
        "id": arguments["bucket"],
        "bucket": arguments["bucket"],
        "region": world.cloud.region,
        "keys": [entry["Key"] for entry in found.get("Contents", [])],
        "commonPrefixes": [],
        "owners": [],
        "requestCharged": "",
    }


def _filters(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"Name": entry["name"], "Values": entry["values"]} for entry in arguments.get("filters", [])]


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


FUNCTIONS: Mapping[str, Answer] = {
    "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings": instance_type_offerings,
    "aws:index/getAvailabilityZones:getAvailabilityZones": availability_zones,
    "aws:index/getCallerIdentity:getCallerIdentity": caller_identity,
    "aws:index/getPartition:getPartition": partition,
    "aws:index/getRegion:getRegion": region,
    "aws:resourcegroupstaggingapi/getResources:getResources": tagged_resources,
    "aws:s3/getObjects:getObjects": objects,
    "aws:ssm/getParameter:getParameter": parameter,
}
