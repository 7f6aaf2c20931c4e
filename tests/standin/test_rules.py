"""What EKS and EC2 refuse beyond the shapes of their APIs, and failures on purpose."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.standin.faults import Fault, Faults, ServiceError
from tests.standin.invokes import UnknownFunctionError, invoke
from tests.standin.node_groups import NodeGroup
from tests.standin.records import Journal, Record, Records
from tests.standin.resources import World
from tests.standin.services import resource_of
from tests.standin.simulated_nodes import allocatable
from tests.standin.wire import Properties

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
SIZE = {"minSize": 0, "maxSize": 1, "desiredSize": 0}


@pytest.mark.parametrize(
    ("inputs", "property_path"),
    [
        ({"scalingConfig": {"minSize": 1, "maxSize": 2, "desiredSize": 3}}, "scalingConfig.desiredSize"),
        ({"scalingConfig": {"minSize": 1, "maxSize": 2}}, "scalingConfig.desiredSize"),
        ({"launchTemplate": {"id": "lt-1"}, "diskSize": 20}, "diskSize"),
        ({"launchTemplate": {"id": "lt-1"}, "remoteAccess": {"ec2SshKey": "k"}}, "remoteAccess"),
        ({"updateConfig": {"maxUnavailable": 1, "maxUnavailablePercentage": 10}}, "updateConfig"),
        (
            {"amiType": "BOTTLEROCKET_x86_64_NVIDIA", "warmPoolConfig": {"poolState": "HIBERNATED"}},
            "warmPoolConfig.poolState",
        ),
        (
            {"amiType": "BOTTLEROCKET_x86_64_NVIDIA", "warmPoolConfig": {"reuseOnScaleIn": True}},
            "warmPoolConfig.reuseOnScaleIn",
        ),
    ],
)
def test_rules_of_node_groups(world: World, inputs: Properties, property_path: str) -> None:
    found = list(resource_of(NODE_GROUP, world).rules({"scalingConfig": SIZE, **inputs}))
    assert [problem.property for problem in found] == [property_path]


@pytest.mark.parametrize(
    ("inputs", "property_path"),
    [
        ({"ipProtocol": "tcp", "fromPort": 443, "toPort": 443}, "cidrIpv4"),
        (
            {
                "ipProtocol": "tcp",
                "fromPort": 1,
                "toPort": 2,
                "cidrIpv4": "10.0.0.0/8",
                "referencedSecurityGroupId": "sg-1",
            },
            "cidrIpv4",
        ),
        ({"ipProtocol": "-1", "fromPort": 0, "toPort": 0, "cidrIpv4": "10.0.0.0/8"}, "ipProtocol"),
        ({"ipProtocol": "tcp", "cidrIpv4": "10.0.0.0/8"}, "fromPort"),
    ],
)
def test_rules_of_security_group_rules(world: World, inputs: Properties, property_path: str) -> None:
    token = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"  # noqa: S105 - a type's name
    assert [problem.property for problem in resource_of(token, world).rules(inputs)] == [property_path]


@pytest.mark.parametrize(
    ("token", "inputs", "property_path"),
    [
        ("aws:ec2/launchTemplate:LaunchTemplate", {"userData": "[settings]"}, "userData"),
        ("aws:ec2/vpcEndpoint:VpcEndpoint", {"subnetIds": []}, "vpcEndpointType"),
        ("aws:ec2/vpcEndpoint:VpcEndpoint", {"vpcEndpointType": "Interface", "routeTableIds": []}, "vpcEndpointType"),
        ("aws:cloudwatch/logGroup:LogGroup", {"retentionInDays": 10}, "retentionInDays"),
    ],
)
def test_rules_of_other_types(world: World, token: str, inputs: Properties, property_path: str) -> None:
    assert [problem.property for problem in resource_of(token, world).rules(inputs)] == [property_path]


@pytest.fixture
def cluster(world: World) -> str:
    """A cluster that only the stand-in's records know: enough to refuse node groups on it."""
    world.records.put(Record("aws:eks/cluster:Cluster", "c", "c", inputs={"version": "1.36"}))
    return "c"


Template = Callable[..., Properties]


@pytest.fixture
def template(world: World) -> Template:
    """Makes a launch template; what a node group says about it."""

    def make(**data: object) -> Properties:
        made = world.cloud.call("ec2.CreateLaunchTemplate", {"LaunchTemplateName": "nodes", "LaunchTemplateData": data})
        return {"id": made["LaunchTemplate"]["LaunchTemplateId"], "version": "1"}

    return make


def refusal(world: World, inputs: Properties) -> str:
    group = resource_of(NODE_GROUP, world)
    assert isinstance(group, NodeGroup)
    with pytest.raises(ServiceError) as refused:
        group.before_create({"nodeGroupName": "n", "amiType": "BOTTLEROCKET_x86_64_NVIDIA", **inputs})
    return str(refused.value)


def test_a_node_group_needs_its_cluster(world: World) -> None:
    assert "No cluster found for name: nowhere" in refusal(world, {"clusterName": "nowhere"})


def test_the_instance_type_is_given_in_one_place_only(world: World, cluster: str, template: Template) -> None:
    inputs = {"clusterName": cluster, "launchTemplate": template(InstanceType="g6.xlarge")}
    assert "instance types in both" in refusal(world, inputs | {"instanceTypes": ["g6.xlarge"]})


def test_an_instance_type_exists(world: World, cluster: str, template: Template) -> None:
    inputs = {"clusterName": cluster, "launchTemplate": template(InstanceType="g6.tiny")}
    assert "instance types do not exist: [g6.tiny]" in refusal(world, inputs)


def test_a_template_version_exists(world: World, cluster: str, template: Template) -> None:
    inputs = {"clusterName": cluster, "launchTemplate": template(InstanceType="g6.xlarge") | {"version": "7"}}
    assert "Launch template version 7 not found" in refusal(world, inputs)


def test_user_data_of_bottlerocket_is_toml(world: World, cluster: str, template: Template) -> None:
    mime = base64.b64encode(b"MIME-Version: 1.0\n").decode()
    inputs = {"clusterName": cluster, "launchTemplate": template(InstanceType="g6.xlarge", UserData=mime)}
    assert "not in the TOML format" in refusal(world, inputs)


def test_a_custom_image_and_an_ami_type_exclude_each_other(world: World, cluster: str, template: Template) -> None:
    inputs = {"clusterName": cluster, "launchTemplate": template(InstanceType="g6.xlarge", ImageId="ami-1")}
    assert "cannot specify an AMI type" in refusal(world, inputs)


def test_a_service_account_has_one_association_only(world: World, cluster: str) -> None:
    association = resource_of("aws:eks/podIdentityAssociation:PodIdentityAssociation", world)
    inputs = {"clusterName": cluster, "namespace": "n", "serviceAccount": "s", "roleArn": "arn:1"}
    association.create("first", inputs)
    with pytest.raises(ServiceError, match="ResourceInUseException"):
        association.create("second", inputs | {"roleArn": "arn:2"})


def test_what_a_node_offers_follows_from_its_instance(world: World) -> None:
    found = world.cloud.call("ec2.DescribeInstanceTypes", {"InstanceTypes": ["g6e.12xlarge"]})["InstanceTypes"][0]
    # 48 vCPU and 384 GiB: 250 pods reserve 3,005 MiB, eviction 100, the hypervisor 7.5 %.
    assert allocatable(found) == {
        "cpu": "47810m",
        "memory": "360619Mi",
        "ephemeral-storage": "400Gi",
        "pods": "250",
        "nvidia.com/gpu": "4",
    }


def test_failures_strike_where_and_as_often_as_planned(tmp_path: Path) -> None:
    faults = Faults(tmp_path)
    faults.plan([Fault(operation="create", type=NODE_GROUP, name="zone-b", error="no capacity", times=2)])
    assert faults.strike("create", NODE_GROUP, "gpu-zone-a") is None
    assert faults.strike("delete", NODE_GROUP, "gpu-zone-b") is None
    struck = [Faults(tmp_path).strike("create", NODE_GROUP, "gpu-zone-b") for _ in range(3)]
    assert [fault and fault.error for fault in struck] == ["no capacity", "no capacity", None]


def test_records_outlive_the_process(tmp_path: Path) -> None:
    Records(tmp_path).put(Record("t", "i", "n", inputs={"a": [1]}))
    assert Records(tmp_path).get("t", "i") == Record("t", "i", "n", inputs={"a": [1]})
    Records(tmp_path).remove("t", "i")
    assert Records(tmp_path).all() == []


def test_the_journal_keeps_the_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write(event="begin", name="a")
    journal.write(event="end", name="a")
    assert (tmp_path / "operations.jsonl").read_text().splitlines() == [
        '{"event": "begin", "name": "a"}',
        '{"event": "end", "name": "a"}',
    ]


def test_data_sources_answer_from_moto(world: World) -> None:
    def ask(name: str, **arguments: object) -> Properties:
        return invoke(name, world, arguments)

    zones = ask("aws:index/getAvailabilityZones:getAvailabilityZones", state="available", excludeNames=["us-west-2d"])
    assert zones["names"] == ["us-west-2a", "us-west-2b", "us-west-2c"]
    assert ask("aws:index/getCallerIdentity:getCallerIdentity")["accountId"] == "111122223333"
    assert ask("aws:index/getPartition:getPartition")["dnsSuffix"] == "amazonaws.com"
    assert ask("aws:index/getRegion:getRegion")["region"] == "us-west-2"
    offerings = ask(
        "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings",
        locationType="availability-zone",
        filters=[{"name": "instance-type", "values": ["g6e.2xlarge"]}],
    )
    assert set(offerings["instanceTypes"]) == {"g6e.2xlarge"}
    with pytest.raises(UnknownFunctionError, match="getSecret"):
        ask("aws:secretsmanager/getSecret:getSecret")


def test_a_bottlerocket_release_has_a_build_if_it_exists(world: World) -> None:
    def ask(release: str, kubernetes: str = "1.36") -> str:
        name = f"/aws/service/bottlerocket/aws-k8s-{kubernetes}-nvidia/x86_64/{release}/image_version"
        return invoke("aws:ssm/getParameter:getParameter", world, {"name": name})["value"]

    assert ask("1.60.0").startswith("1.60.0-")
    assert ask("1.60.0") == ask("1.60.0", "1.35")
    assert ask("latest") == ask("1.69.0")
    for release, kubernetes in [("1.70.0", "1.36"), ("1.60.0", "1.20")]:
        with pytest.raises(ServiceError, match="couldn't find resource"):
            ask(release, kubernetes)


def test_a_kept_bucket_is_found_by_its_tags(world: World) -> None:
    bucket = resource_of("aws:s3/bucket:Bucket", world)
    bucket.create("weights", {"bucket": "weights-of-a-test", "tags": {"environment": "dev"}})
    found = invoke(
        "aws:resourcegroupstaggingapi/getResources:getResources",
        world,
        {"resourceTypeFilters": ["s3"], "tagFilters": [{"key": "environment", "values": ["dev"]}]},
    )
    assert [entry["resourceArn"] for entry in found["resourceTagMappingLists"]] == ["arn:aws:s3:::weights-of-a-test"]
