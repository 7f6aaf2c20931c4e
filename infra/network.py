"""The VPC: private subnets for nodes, a gateway endpoint for S3, interface endpoints for what nodes call."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.environment_settings import Egress

INTERFACE_ENDPOINTS = ("ecr.api", "ecr.dkr", "sts", "eks-auth", "ec2", "logs")
"""What a node calls while it starts and a pod while it gets its identity."""
NO_EGRESS_ENDPOINTS = ("eks", "elasticloadbalancing", "autoscaling", "ssm", "ssmmessages", "ec2messages")
"""What else must answer when there is no other way out."""


@dataclass(frozen=True, kw_only=True)
class Subnets:
    """Address plan of a VPC: one private and one public range a zone.

    Private ranges are eighths of the VPC, since every pod takes an address; public ones hold NAT gateways alone.
    """

    private: tuple[str, ...]
    public: tuple[str, ...]


def subnets(cidr: str, zones: int) -> Subnets:
    """The address plan for a VPC between /16 and /20 with up to four zones; no two ranges overlap."""
    eighths = list(ipaddress.ip_network(cidr).subnets(prefixlen_diff=3))
    public = list(eighths[-1].subnets(new_prefix=28))
    return Subnets(
        private=tuple(str(network) for network in eighths[:zones]),
        public=tuple(str(network) for network in public[:zones]),
    )


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """What decides the shape of the network; all plain.

    Attributes:
        zones: full names, us-west-2a.
        nat_per_zone: one NAT gateway a zone, so that losing a zone never takes the others' egress away.
        bucket: name of the weight bucket, which the S3 endpoint must let through.
        partition: aws, aws-cn or aws-us-gov.
    """

    cidr: str
    region: str
    zones: tuple[str, ...]
    egress: Egress
    nat_per_zone: bool
    bucket: str
    partition: str


class Network(pulumi.ComponentResource):
    """VPC, subnets, routes and endpoints of an environment."""

    vpc_id: pulumi.Output[str]
    private_subnet_ids: Sequence[pulumi.Output[str]]

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("coldstart:network:Network", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        plan = subnets(args.cidr, len(args.zones))
        self._vpc = aws.ec2.Vpc(
            name, cidr_block=args.cidr, enable_dns_support=True, enable_dns_hostnames=True, opts=self._child
        )
        private = [self._subnet("private", zone, cidr) for zone, cidr in zip(args.zones, plan.private, strict=True)]
        tables = [self._route_table(zone, subnet) for zone, subnet in zip(args.zones, private, strict=True)]
        if args.egress is Egress.NAT:
            self._egress(plan, tables)
        self.s3_endpoint = self._s3_endpoint(tables)
        self.endpoints = self._interface_endpoints(private)
        self.vpc_id = self._vpc.id
        self.private_subnet_ids = [subnet.id for subnet in private]
        self.register_outputs({"vpcId": self.vpc_id, "privateSubnetIds": self.private_subnet_ids})

    def _subnet(self, kind: str, zone: str, cidr: str) -> aws.ec2.Subnet:
        tags = {"Name": f"{self._name}-{kind}-{zone}"}
        if kind == "private":
            tags["kubernetes.io/role/internal-elb"] = "1"
        return aws.ec2.Subnet(
            f"{self._name}-{kind}-{zone}",
            vpc_id=self._vpc.id,
            cidr_block=cidr,
            availability_zone=zone,
            map_public_ip_on_launch=False,
            tags=tags,
            opts=self._child,
        )

    def _route_table(self, zone: str, subnet: aws.ec2.Subnet) -> aws.ec2.RouteTable:
        table = aws.ec2.RouteTable(f"{self._name}-private-{zone}", vpc_id=self._vpc.id, opts=self._child)
        aws.ec2.RouteTableAssociation(
            f"{self._name}-private-{zone}", subnet_id=subnet.id, route_table_id=table.id, opts=self._child
        )
        return table

    def _egress(self, plan: Subnets, tables: Sequence[aws.ec2.RouteTable]) -> None:
        """One way out: an internet gateway, and NAT gateways in public subnets, used by every private route table."""
        name, child = self._name, self._child
        gateway = aws.ec2.InternetGateway(name, vpc_id=self._vpc.id, opts=child)
        public = aws.ec2.RouteTable(f"{name}-public", vpc_id=self._vpc.id, opts=child)
        aws.ec2.Route(
            f"{name}-public",
            route_table_id=public.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=gateway.id,
            opts=child,
        )
        zones = self._args.zones if self._args.nat_per_zone else self._args.zones[:1]
        nats: list[aws.ec2.NatGateway] = []
        for zone, cidr in zip(zones, plan.public, strict=False):
            subnet = self._subnet("public", zone, cidr)
            aws.ec2.RouteTableAssociation(
                f"{name}-public-{zone}", subnet_id=subnet.id, route_table_id=public.id, opts=child
            )
            address = aws.ec2.Eip(f"{name}-nat-{zone}", domain="vpc", opts=child)
            nats.append(
                aws.ec2.NatGateway(
                    f"{name}-{zone}",
                    subnet_id=subnet.id,
                    allocation_id=address.allocation_id,
                    opts=pulumi.ResourceOptions(parent=self, depends_on=[gateway]),
                )
            )
        for index, (zone, table) in enumerate(zip(self._args.zones, tables, strict=True)):
            aws.ec2.Route(
                f"{name}-private-{zone}",
                route_table_id=table.id,
                destination_cidr_block="0.0.0.0/0",
                nat_gateway_id=nats[index % len(nats)].id,
                opts=child,
            )

    def _s3_endpoint(self, tables: Sequence[aws.ec2.RouteTable]) -> aws.ec2.VpcEndpoint:
        """S3 without NAT and without a price per GB, on every private route table."""
        policy = s3_endpoint_policy(self._args.partition, self._args.region, self._args.bucket)
        return aws.ec2.VpcEndpoint(
            f"{self._name}-s3",
            vpc_id=self._vpc.id,
            service_name=f"com.amazonaws.{self._args.region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[table.id for table in tables],
            policy=json.dumps(policy),
            opts=self._child,
        )

    def _interface_endpoints(self, private: Sequence[aws.ec2.Subnet]) -> Sequence[aws.ec2.VpcEndpoint]:
        name, child = self._name, self._child
        group = aws.ec2.SecurityGroup(
            f"{name}-endpoints",
            vpc_id=self._vpc.id,
            description="HTTPS from inside the VPC to the interface endpoints",
            opts=child,
        )
        aws.vpc.SecurityGroupIngressRule(
            f"{name}-endpoints-https",
            security_group_id=group.id,
            cidr_ipv4=self._args.cidr,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            opts=child,
        )
        services = INTERFACE_ENDPOINTS + (NO_EGRESS_ENDPOINTS if self._args.egress is Egress.NONE else ())
        return [
            aws.ec2.VpcEndpoint(
                f"{name}-{service}",
                vpc_id=self._vpc.id,
                service_name=f"com.amazonaws.{self._args.region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=[subnet.id for subnet in private],
                security_group_ids=[group.id],
                opts=child,
            )
            for service in services
        ]


def s3_endpoint_policy(partition: str, region: str, bucket: str) -> dict[str, object]:
    """Policy of the S3 gateway endpoint: the weight bucket, and the stores that image layers come from.

    ECR hands out presigned addresses of a bucket of its own, so that statement can't ask who the caller is; without it
    every pull from ECR fails (amazon-ecr-user-guide#8). registry.k8s.io answers with S3 buckets of the region as well.
    """
    arn = f"arn:{partition}:s3:::"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "Weights",
                "Effect": "Allow",
                "Principal": "*",
                "Action": [
                    "s3:GetObject",
                    "s3:PutObject",
                    "s3:DeleteObject",
                    "s3:ListBucket",
                    "s3:GetBucketLocation",
                    "s3:AbortMultipartUpload",
                    "s3:ListMultipartUploadParts",
                    "s3:ListBucketMultipartUploads",
                ],
                "Resource": [f"{arn}{bucket}", f"{arn}{bucket}/*"],
            },
            {
                "Sid": "ImageLayers",
                "Effect": "Allow",
                "Principal": "*",
                "Action": ["s3:GetObject"],
                "Resource": [
                    f"{arn}prod-{region}-starport-layer-bucket/*",
                    f"{arn}prod-registry-k8s-io-{region}/*",
                ],
            },
        ],
    }
