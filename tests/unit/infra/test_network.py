"""The network: what leads out, what leads to S3, and what answers inside."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from budget.staged import StagedModel
from infra.network import s3_endpoint_policy, subnets
from infra.offline import Evaluation, Recorded
from infra.weight_access import EVERY_MODEL, reader_policy, stager_policy

Declared = Callable[..., Evaluation]
LLAMA = "dev-llama-3-1-8b"
NO_EGRESS = {
    "environment.network.egress": "none",
    "environment.addons.keda": "present",
    "environment.addons.cluster_autoscaler": "present",
}


def of(found: Evaluation, suffix: str) -> Sequence[Recorded]:
    return found.of_type(suffix)


def endpoints(found: Evaluation) -> dict[str, Recorded]:
    """Service (`s3`, `ecr.api`) → its endpoint."""
    return {
        resource.inputs["serviceName"].removeprefix("com.amazonaws.us-west-2."): resource
        for resource in of(found, "vpcEndpoint:VpcEndpoint")
    }


def ids(resources: Sequence[Recorded]) -> set[str]:
    """Ids as the recording cloud gives them."""
    return {f"{resource.name}-id" for resource in resources}


# ---- subnets --------------------------------------------------------------------------------------------------------


def test_one_private_subnet_a_zone_and_none_gives_out_public_addresses(declared: Declared) -> None:
    found = declared("dev")
    private = [subnet for subnet in of(found, "subnet:Subnet") if "-private-" in subnet.name]
    assert [subnet.inputs["availabilityZone"] for subnet in private] == ["us-west-2a", "us-west-2b", "us-west-2c"]
    assert all(subnet.inputs["mapPublicIpOnLaunch"] is False for subnet in of(found, "subnet:Subnet"))
    assert all(subnet.inputs["tags"]["kubernetes.io/role/internal-elb"] == "1" for subnet in private)


def test_nodes_are_never_in_a_public_subnet(declared: Declared) -> None:
    found = declared("dev")
    (group,) = of(found, "eks/nodeGroup:NodeGroup")
    (cluster,) = of(found, "eks/cluster:Cluster")
    private = {f"subnet-offline-{name.name}" for name in of(found, "subnet:Subnet") if "-private-" in name.name}
    assert set(group.inputs["subnetIds"]) == private
    assert set(cluster.inputs["vpcConfig"]["subnetIds"]) == private


@pytest.mark.parametrize(("cidr", "zones"), [("10.0.0.0/16", 4), ("10.0.0.0/20", 4), ("172.20.0.0/18", 2)])
def test_the_address_plan_gives_pods_the_room(cidr: str, zones: int) -> None:
    plan = subnets(cidr, zones)
    networks = [ipaddress.ip_network(text) for text in plan.private]
    vpc = ipaddress.ip_network(cidr)
    assert all(network.num_addresses == vpc.num_addresses // 8 for network in networks)
    assert all(ipaddress.ip_network(text).prefixlen == 28 for text in plan.public)


def test_names_of_the_vpc_resolve_inside_it(declared: Declared) -> None:
    """Private names of the interface endpoints need both."""
    (vpc,) = of(declared("dev"), "vpc:Vpc")
    assert vpc.inputs["enableDnsSupport"] is True
    assert vpc.inputs["enableDnsHostnames"] is True
    assert vpc.inputs["cidrBlock"] == "10.64.0.0/16"


# ---- the way out ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("production", "gateways"), [(False, 1), (True, 3)])
def test_a_nat_gateway_and_in_production_one_a_zone(declared: Declared, *, production: bool, gateways: int) -> None:
    found = declared("dev", {"environment.production": production})
    nats = of(found, "natGateway:NatGateway")
    assert len(nats) == len(of(found, "eip:Eip")) == gateways
    public = {subnet.name: subnet for subnet in of(found, "subnet:Subnet") if "-public-" in subnet.name}
    assert {nat.inputs["subnetId"] for nat in nats} == {f"subnet-offline-{name}" for name in public}
    (gateway,) = of(found, "internetGateway:InternetGateway")
    assert all(gateway.urn in nat.depends_on for nat in nats)


@pytest.mark.parametrize("production", [False, True])
def test_every_private_route_table_leads_out_through_a_nat_gateway(declared: Declared, *, production: bool) -> None:
    found = declared("dev", {"environment.production": production})
    tables = [table for table in of(found, "routeTable:RouteTable") if "-private-" in table.name]
    routes = {route.inputs["routeTableId"]: route.inputs for route in of(found, "route:Route")}
    assert len(tables) == 3
    for table in tables:
        route = routes[f"{table.name}-id"]
        assert route["destinationCidrBlock"] == "0.0.0.0/0"
        assert "gatewayId" not in route
        zone = table.name.removeprefix("dev-private-")
        assert route["natGatewayId"] == (f"dev-{zone}-id" if production else "dev-us-west-2a-id")


def test_a_public_subnet_lies_in_the_zone_of_its_nat_gateway(declared: Declared) -> None:
    for subnet in of(declared("dev", {"environment.production": True}), "subnet:Subnet"):
        assert subnet.name.endswith(subnet.inputs["availabilityZone"])


def test_without_egress_nothing_leads_out(declared: Declared) -> None:
    found = declared("dev", NO_EGRESS)
    for suffix in ("natGateway:NatGateway", "internetGateway:InternetGateway", "route:Route", "eip:Eip"):
        assert not of(found, suffix)
    assert not [subnet for subnet in of(found, "subnet:Subnet") if "-public-" in subnet.name]


# ---- S3 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{}, {"environment.production": True}, NO_EGRESS], ids=["nat", "production", "none"]
)
@pytest.mark.parametrize("mode", ["up", "preview"])
def test_the_s3_endpoint_is_on_every_private_route_table(
    declared: Declared, changes: dict[str, Any], mode: str
) -> None:
    """One table without it, and a zone's weights go through NAT at 4.5 cents a GB."""
    found = declared("dev", changes, mode=mode)
    s3 = endpoints(found)["s3"]
    tables = [table for table in of(found, "routeTable:RouteTable") if "-private-" in table.name]
    assert s3.inputs["vpcEndpointType"] == "Gateway"
    assert {table.urn for table in tables} <= s3.depends_on
    assert len(s3.inputs["routeTableIds"]) == len(tables) == 3 if mode == "up" else True
    if mode == "up":
        assert set(s3.inputs["routeTableIds"]) == ids(tables)


def allows(policy: dict[str, Any], action: str, resource: str) -> bool:
    """Whether a policy of exact actions and trailing wildcards lets an action through."""
    for statement in policy["Statement"]:
        resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        covered = any(
            resource == pattern or (pattern.endswith("*") and resource.startswith(pattern[:-1]))
            for pattern in resources
        )
        if (
            statement["Effect"] == "Allow"
            and action in statement["Action"]
            and covered
            and "Condition" not in statement
        ):
            return True
    return False


def test_image_layers_get_through_the_s3_endpoint(declared: Declared) -> None:
    """ECR keeps layers in a bucket of its own and presigns the addresses: closed, every pull from ECR fails."""
    policy = json.loads(endpoints(declared("dev"))["s3"].inputs["policy"])
    assert allows(policy, "s3:GetObject", "arn:aws:s3:::prod-us-west-2-starport-layer-bucket/any/layer")
    assert allows(policy, "s3:GetObject", "arn:aws:s3:::prod-registry-k8s-io-us-west-2/any/layer")
    assert not allows(policy, "s3:PutObject", "arn:aws:s3:::prod-us-west-2-starport-layer-bucket/any/layer")


def test_the_weight_bucket_gets_through_and_no_other(declared: Declared) -> None:
    policy = json.loads(endpoints(declared("dev"))["s3"].inputs["policy"])
    bucket = "arn:aws:s3:::coldstart-dev-111122223333-us-west-2"
    assert allows(policy, "s3:GetObject", f"{bucket}/models/a/b/c")
    assert allows(policy, "s3:ListBucket", bucket)
    assert not allows(policy, "s3:GetObject", "arn:aws:s3:::somebody-elses/secret")
    assert not allows(policy, "s3:GetObject", "arn:aws:s3:::coldstart-dev-111122223333-us-west-2-other/x")
    assert not allows(policy, "s3:DeleteBucket", bucket)
    assert len(json.dumps(policy)) < 20_480


@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov"])
def test_the_policy_speaks_of_its_own_partition(partition: str) -> None:
    policy: Any = s3_endpoint_policy(partition, "r", "b")
    for statement in policy["Statement"]:
        assert all(resource.startswith(f"arn:{partition}:s3:::") for resource in statement["Resource"])


def test_whoever_may_use_the_bucket_may_use_it_through_the_endpoint() -> None:
    """A pod that stages and a pod that reads both reach S3 through the endpoint alone."""
    endpoint: Any = s3_endpoint_policy("aws", "us-west-2", "weights")
    reader: Any = reader_policy(
        partition="aws", bucket="weights", staged=StagedModel(name="a/b", revision="c" * 40), kms_key_arn=None
    )
    stager: Any = stager_policy(partition="aws", bucket="weights", model=EVERY_MODEL, kms_key_arn=None)
    for statement in [*reader["Statement"], *stager["Statement"]]:
        for action in statement["Action"]:
            on = "arn:aws:s3:::weights" if "Bucket" in action or action == "s3:ListBucket" else "arn:aws:s3:::weights/x"
            assert allows(endpoint, action, on), action


# ---- interface endpoints --------------------------------------------------------------------------------------------

NODE_SERVICES = {"ecr.api", "ecr.dkr", "sts", "eks-auth", "ec2", "logs"}
ALONE_SERVICES = NODE_SERVICES | {"eks", "elasticloadbalancing", "autoscaling", "ssm", "ssmmessages", "ec2messages"}


@pytest.mark.parametrize(
    ("changes", "services"), [({}, NODE_SERVICES), (NO_EGRESS, ALONE_SERVICES)], ids=["nat", "none"]
)
def test_what_a_node_calls_answers_inside_the_vpc(
    declared: Declared, changes: dict[str, Any], services: set[str]
) -> None:
    found = endpoints(declared("dev", changes))
    assert set(found) == services | {"s3"}
    for service in services:
        inputs = found[service].inputs
        assert inputs["vpcEndpointType"] == "Interface"
        assert inputs["privateDnsEnabled"] is True
        assert len(inputs["subnetIds"]) == 3
        assert inputs["securityGroupIds"] == ["dev-endpoints-id"]
        assert "policy" not in inputs  # a policy that names one account would lock out AWS's own add-on images


def test_endpoints_admit_https_from_the_whole_vpc_and_nothing_else(declared: Declared) -> None:
    (rule,) = of(declared("dev"), "securityGroupIngressRule:SecurityGroupIngressRule")
    wanted = {"cidrIpv4": "10.64.0.0/16", "ipProtocol": "tcp", "fromPort": 443, "toPort": 443}
    assert {key: rule.inputs[key] for key in wanted} == wanted
    assert rule.inputs["securityGroupId"] == "dev-endpoints-id"


def test_weights_never_go_through_an_s3_interface_endpoint(declared: Declared) -> None:
    assert endpoints(declared("dev", NO_EGRESS))["s3"].inputs["vpcEndpointType"] == "Gateway"


def test_a_model_changes_nothing_of_the_network(declared: Declared) -> None:
    assert not [resource.type for resource in declared(LLAMA).resources if ":vpc/" in resource.type]
    assert not of(declared(LLAMA), "vpcEndpoint:VpcEndpoint")
