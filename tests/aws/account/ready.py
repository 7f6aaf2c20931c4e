"""An account, a region and a cluster in which everything is right for the shipped model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import yaml

from scripts.account.session import Account
from scripts.checks.finding import Subject, Wanted
from scripts.cluster.api import Unreachable
from scripts.preflight import Answer, preflight, wanted_of
from scripts.registry import ImagePin, NotThere
from tests.aws.account.audited import REGION
from tests.aws.account.front import ACCOUNT, Front
from tests.aws.account.seed import pairs

MODEL = "dev-llama-3-1-8b"
TAGS = {"application": "coldstart", "environment": "dev", "stack": "dev"}


class Cluster:
    """A cluster in which everything runs."""

    def __init__(self, missing: str = "", *, reachable: bool = True, available: int = 1) -> None:
        self._missing, self._reachable, self._available = missing, reachable, available

    def get(self, path: str) -> Mapping[str, Any] | None:
        if not self._reachable:
            raise Unreachable("the Kubernetes API of coldstart-dev does not answer: timed out")
        return {"gitVersion": "v1.35.2"} if path == "/version" or ("keda" in path and self._missing != "keda") else None

    def items(self, path: str, **selectors: str) -> Any:
        del path
        name = "keda-operator" if "keda" in selectors["labelSelector"] else "cluster-autoscaler"
        if name.startswith(self._missing) and self._missing:
            return iter(())
        metadata = {"namespace": "kube-system", "name": name}
        return iter([{"metadata": metadata, "status": {"availableReplicas": self._available}}])

    def merge(self, path: str, patch: Mapping[str, Any]) -> bool:
        raise AssertionError(f"preflight changes {path} by {patch}")

    def delete(self, path: str) -> bool:
        raise AssertionError(f"preflight deletes {path}")


class Registry:
    """A registry that has every image but those that are called missing."""

    def resolve(self, image: str, architecture: str) -> ImagePin:
        assert architecture == "amd64"
        if "missing" in image:
            raise NotThere(f"{image}: registry-1.docker.io has no {image}")
        return ImagePin(digest="sha256:" + "a" * 64, layers=(5_000_000_000, 4_000_000_000))


@dataclass
class Ready:
    """An account, a region and a cluster that are ready for the model.

    Attributes:
        api: finds the cluster, when it is not simply `cluster`.
    """

    front: Front
    account: Account
    directory: Path
    cluster: Any = field(default_factory=Cluster)
    api: Callable[[], Any] | None = None

    def client(self, service: str) -> Any:
        return boto3.client(service, region_name=REGION, endpoint_url=self.front.endpoint)

    def quota(self, **vcpu: float | None) -> None:
        """Quotas by code; None is one that was never applied to the account."""

        def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
            return {"Quota": {"QuotaCode": request["QuotaCode"], "Value": vcpu.get(request["QuotaCode"], 64.0)}}

        self.front.answers["service-quotas.GetServiceQuota"] = answer

    def edit(self, key: str, value: object, stack: str = MODEL) -> None:
        path = self.directory / f"Pulumi.{stack}.yaml"
        document_ = yaml.safe_load(path.read_text())
        kind, *parts = key.split(".")
        node, last = document_["config"], f"coldstart:{kind}"
        for part in parts:
            node, last = node.setdefault(last, {}), part
        node[last] = value
        path.write_text(yaml.safe_dump(document_))

    def wanted(self, stack: str = MODEL) -> Wanted:
        return wanted_of(stack, self.directory)

    def ask(self, stack: str = MODEL) -> dict[str, Answer]:
        subject = Subject(
            wanted=self.wanted(stack),
            account=self.account,
            clients=self.account.region(REGION),
            registry=Registry(),
            api=self.api or (lambda: self.cluster),
        )
        return {answer.check.name: answer for answer in preflight(subject)}


def made_ready(front: Front, account: Account, stack_files: Path) -> Ready:
    """Makes everything that the shipped model needs."""
    made = Ready(front, account, stack_files)
    made.quota()
    front.answers |= {
        "eks.DescribeClusterVersions": lambda _: versions("STANDARD_SUPPORT", days=400),
        "ec2.GetEbsDefaultKmsKeyId": lambda _: {"KmsKeyId": "alias/aws/ebs"},
        "ssm.GetParameter": lambda asked: {"Parameter": {"Name": asked["Name"], "Value": "1.69.0-431fe75a"}},
    }
    ec2, iam, s3 = made.client("ec2"), made.client("iam"), made.client("s3")
    vpc = ec2.create_vpc(CidrBlock="10.64.0.0/16")["Vpc"]["VpcId"]
    tables = []
    for index, letter in enumerate("abc"):
        spec = [{"ResourceType": "subnet", "Tags": pairs(TAGS | {"kubernetes.io/role/internal-elb": "1"})}]
        place = {"CidrBlock": f"10.64.{index * 16}.0/20", "AvailabilityZone": f"{REGION}{letter}"}
        subnet = ec2.create_subnet(VpcId=vpc, TagSpecifications=spec, **place)["Subnet"]["SubnetId"]
        table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
        ec2.associate_route_table(SubnetId=subnet, RouteTableId=table)
        tables.append(table)
    ec2.create_vpc_endpoint(
        VpcId=vpc, ServiceName=f"com.amazonaws.{REGION}.s3", VpcEndpointType="Gateway", RouteTableIds=tables
    )
    # moto names service-linked roles in a way of its own.
    for role in ("AmazonEKS", "AmazonEKSNodegroup", "AutoScaling", "EC2Spot"):
        iam.create_role(RoleName=f"AWSServiceRoleFor{role}", AssumeRolePolicyDocument="{}")
    made.client("eks").create_cluster(
        name="coldstart-dev",
        version="1.35",
        roleArn=f"arn:aws:iam::{ACCOUNT}:role/x",
        resourcesVpcConfig={"subnetIds": ["subnet-1"]},
    )
    bucket = f"coldstart-dev-{ACCOUNT}-{REGION}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    specs = made.wanted().specs
    assert specs is not None
    s3.put_object(Bucket=bucket, Key=specs.staged.manifest_key, Body=b"{}")
    return made


def versions(status: str, days: int) -> dict[str, Any]:
    end = datetime.now(UTC) + timedelta(days=days)
    entry = {"clusterVersion": "1.35", "versionStatus": status, "endOfStandardSupportDate": end}
    return {"clusterVersions": [entry]}
