"""What an audit of a crowded account takes: calls to AWS, seconds, and memory that does not grow with what others have.

python -m benchmarks.audit [--things 0 1000 10000]

The account is served over HTTP on this machine: identities, logs, secrets, keys, repositories and buckets by moto, the
lists of EC2 page by page in EC2's own protocol, which moto would put into one answer. One thing in ten is ours.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import boto3

from scripts.account.audit import Scope, audit
from scripts.account.ownership import Owners
from scripts.account.session import sign_in
from tests.aws.account.accounts import accounts
from tests.aws.account.front import ACCOUNT, Front
from tests.aws.account.lacking import answer_for_moto

ROOT = Path(__file__).parents[1]
REGION = "us-west-2"
OURS_IN = 10
"""One of so many things is ours."""
MADE = datetime(2026, 11, 1, tzinfo=UTC)
Made = Callable[[int, list[dict[str, str]]], dict[str, Any]]

SHARES: Mapping[str, float] = {
    "instances": 0.10,
    "volumes": 0.20,
    "snapshots": 0.20,
    "interfaces": 0.20,
    "security groups": 0.10,
    "log groups": 0.10,
    "roles": 0.04,
    "secrets": 0.02,
    "repositories": 0.02,
    "keys": 0.01,
    "buckets": 0.01,
}
"""Kind → part of all things: what accounts with many clusters are full of."""


def tags_of(number: int) -> dict[str, str]:
    """Tags of the thing of that number."""
    if number % OURS_IN == 0:
        return {"application": "coldstart", "environment": "dev", "stack": "dev"}
    return {"application": "coldstart-legacy", "environment": "dev", "team": "somebody else"}


def _id(prefix: str, number: int) -> str:
    return f"{prefix}-{number:017x}"


def _instance(number: int, tags: list[dict[str, str]]) -> dict[str, Any]:
    state = {"Code": 16, "Name": "running"}
    return {"InstanceId": _id("i", number), "InstanceType": "g6e.2xlarge", "State": state, "Tags": tags}


def _volume(number: int, tags: list[dict[str, str]]) -> dict[str, Any]:
    size: dict[str, Any] = {"Size": 100, "VolumeType": "gp3", "Iops": 3000, "Throughput": 125, "State": "in-use"}
    return {"VolumeId": _id("vol", number), "CreateTime": MADE, "Tags": tags} | size


def _snapshot(number: int, tags: list[dict[str, str]]) -> dict[str, Any]:
    facts = {"StartTime": MADE, "VolumeSize": 100, "State": "completed", "OwnerId": ACCOUNT}
    return {"SnapshotId": _id("snap", number), "Tags": tags} | facts


def _interface(number: int, tags: list[dict[str, str]]) -> dict[str, Any]:
    return {"NetworkInterfaceId": _id("eni", number), "Status": "in-use", "VpcId": "vpc-1", "TagSet": tags}


def _group(number: int, tags: list[dict[str, str]]) -> dict[str, Any]:
    return {"GroupId": _id("sg", number), "GroupName": f"group-{number}", "VpcId": "vpc-1", "Tags": tags}


PAGED: Mapping[str, tuple[str, str, Made]] = {
    "instances": ("DescribeInstances", "Reservations", lambda n, tags: {"Instances": [_instance(n, tags)]}),
    "volumes": ("DescribeVolumes", "Volumes", _volume),
    "snapshots": ("DescribeSnapshots", "Snapshots", _snapshot),
    "interfaces": ("DescribeNetworkInterfaces", "NetworkInterfaces", _interface),
    "security groups": ("DescribeSecurityGroups", "SecurityGroups", _group),
}
"""Kind → operation of EC2, member of its answer, and how one thing looks there."""


def pages(member: str, made: Made, count: int) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """An answer of EC2 that goes on where its token says."""

    def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
        first = int(request.get("NextToken") or 0)
        past = min(count, first + int(request["MaxResults"]))
        found = [
            made(number, [{"Key": key, "Value": value} for key, value in tags_of(number).items()])
            for number in range(first, past)
        ]
        return {member: found, "NextToken": str(past) if past < count else ""}

    return answer


def fill(front: Front, things: int) -> None:
    """Puts that many things into the account."""
    for kind, (operation, member, made) in PAGED.items():
        front.answers[f"ec2.{operation}"] = pages(member, made, round(things * SHARES[kind]))
    session = boto3.Session(aws_access_key_id="testing", aws_secret_access_key="testing")  # noqa: S106 - moto's

    client = cast("Callable[..., Any]", session.client)  # of any service
    logs, iam, secrets, ecr, kms, s3 = (
        client(name, region_name=REGION, endpoint_url=front.endpoint)
        for name in ("logs", "iam", "secretsmanager", "ecr", "kms", "s3")
    )
    place = {"CreateBucketConfiguration": {"LocationConstraint": REGION}}

    def bucket(number: int, tags: list[dict[str, str]]) -> None:
        s3.create_bucket(Bucket=f"bucket-{number:05}", **place)
        s3.put_bucket_tagging(Bucket=f"bucket-{number:05}", Tagging={"TagSet": tags})

    makers: Mapping[str, Callable[[int, list[dict[str, str]]], object]] = {
        "log groups": lambda n, _: logs.create_log_group(logGroupName=f"/team/log-{n}", tags=tags_of(n)),
        "roles": lambda n, tags: iam.create_role(RoleName=f"role-{n}", AssumeRolePolicyDocument="{}", Tags=tags),
        "secrets": lambda n, tags: secrets.create_secret(Name=f"secret-{n}", SecretString="-", Tags=tags),
        "repositories": lambda n, tags: ecr.create_repository(repositoryName=f"images/{n}", tags=tags),
        "keys": lambda n, _: kms.create_key(Tags=[{"TagKey": k, "TagValue": v} for k, v in tags_of(n).items()]),
        "buckets": bucket,
    }
    for kind, make in makers.items():
        for number in range(round(things * SHARES[kind])):
            make(number, [{"Key": key, "Value": value} for key, value in tags_of(number).items()])


def look() -> Mapping[str, Any]:
    """One audit, in a process of its own."""
    started = time.perf_counter()
    account = sign_in(account=ACCOUNT, region=REGION)
    scope = Scope(stack=None, environment="dev", account=ACCOUNT, regions=(REGION,))
    found = audit(account, scope, {}, Owners(["dev"]))
    return {
        "ours": len(found.things),
        "foreign": found.foreign,
        "unseen": [f"{each.kind}: {each.why}" for each in found.unseen],
        "calls": found.calls,
        "seconds": round(time.perf_counter() - started, 1),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def measured(things: int) -> Mapping[str, Any]:
    """An audit of an account with that many things."""
    with tempfile.TemporaryDirectory() as folder, accounts(Path(folder)) as moto, Front.before(moto.endpoint) as front:
        answer_for_moto(front)
        fill(front, things)
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL": front.endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1",
        }
        command = [sys.executable, "-m", "benchmarks.audit", "--look"]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE)
        return {"things": things, **json.loads(done.stdout)}


def main(arguments: Sequence[str]) -> None:
    """Prints one JSON line for each size of account."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--things", type=int, nargs="+", default=[0, 1_000, 10_000])
    parser.add_argument("--look", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.look:
        sys.stdout.write(json.dumps(look()))
        return
    for things in options.things:
        sys.stdout.write(json.dumps(measured(things)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
