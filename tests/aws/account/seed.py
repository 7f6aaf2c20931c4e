"""One of every kind of thing in an account, as a set: what the audit must find, or must leave alone.

Ids and prices are returned as literals of the price table's own units, so that a test can add them up by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import boto3

from tests.aws.account.front import Front
from tests.aws.account.lacking import reservation

HOURS = 730
G6E_2XLARGE = 2.24208
"""On-demand price per hour in the instance table."""


@dataclass(frozen=True)
class Names:
    """How the things of a set are called where AWS has names.

    Attributes:
        cluster: name of the EKS cluster, and first part of names that follow from it.
        bucket: must be unique in the world.
    """

    cluster: str
    bucket: str
    secret: str
    short: str


@dataclass
class Set:
    """What was made: (kind, id) → price per hour."""

    things: dict[tuple[str, str], float] = field(default_factory=dict)
    role: str = ""
    ids: set[str] = field(default_factory=set)

    def add(self, kind: str, name: str, usd_per_hour: float = 0.0, *, pulumi_id: str | None = None) -> str:
        """Notes one thing; `pulumi_id` is its id in a state, when Pulumi would have made it."""
        self.things[kind, name] = usd_per_hour
        if pulumi_id:
            self.ids.add(pulumi_id)
        return name


def seed(session: boto3.Session, front: Front, names: Names, tags: Mapping[str, str], *, region: str) -> Set:
    """Makes a set.

    Args:
        session: of the account.
        front: in front of moto; also answers for the reservation and the fast restore.
        names: what things are called.
        tags: of everything that the program tags; empty makes what nobody tagged.
        region: where.
    """
    made = _Making(session, front, names, dict(tags), region)
    made.identity()
    made.network()
    made.cluster()
    made.compute()
    made.balancers()
    made.storage()
    made.rest()
    return made.set


class _Making:
    """A set while it is made."""

    def __init__(self, session: boto3.Session, front: Front, names: Names, tags: dict[str, str], region: str) -> None:
        self.set, self.names, self.tags, self.region = Set(), names, tags, region
        self._session, self._front = session, front

    def client(self, service: str) -> Any:
        return self._session.client(service, region_name=self.region, endpoint_url=self._front.endpoint)

    def spec(self, kind: str, extra: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        tags = self.tags | dict(extra or {})
        return [{"ResourceType": kind, "Tags": pairs(tags)}] if tags else []

    @property
    def controllers(self) -> dict[str, str]:
        """What a controller inside the cluster puts on what it makes."""
        return {f"kubernetes.io/cluster/{self.names.cluster}": "owned"}

    def identity(self) -> None:
        iam, name = self.client("iam"), f"{self.names.short}-node"
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": []}), Tags=pairs(self.tags))
        self.set.add("IAM role", name, pulumi_id=name)
        profile = f"eks-{self.names.short}"
        iam.create_instance_profile(InstanceProfileName=profile)
        iam.add_role_to_instance_profile(InstanceProfileName=profile, RoleName=name)
        self.set.add("instance profile", profile)
        self.set.role = name

    def network(self) -> None:
        ec2 = self.client("ec2")
        self.vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=self.spec("vpc"))["Vpc"]["VpcId"]
        self.set.add("VPC", self.vpc, pulumi_id=self.vpc)
        self.subnets = [
            ec2.create_subnet(
                VpcId=self.vpc,
                CidrBlock=f"10.0.{index}.0/24",
                AvailabilityZone=f"{self.region}{letter}",
                TagSpecifications=self.spec("subnet"),
            )["Subnet"]["SubnetId"]
            for index, letter in enumerate("ab")
        ]
        address = ec2.allocate_address(Domain="vpc", TagSpecifications=self.spec("elastic-ip"))["AllocationId"]
        self.set.add("elastic IP", address, 0.005, pulumi_id=address)
        nat = ec2.create_nat_gateway(
            SubnetId=self.subnets[0], AllocationId=address, TagSpecifications=self.spec("natgateway")
        )["NatGateway"]["NatGatewayId"]
        self.set.add("NAT gateway", nat, 0.045, pulumi_id=nat)
        service = f"com.amazonaws.{self.region}"
        for name, kind, usd in ((f"{service}.s3", "Gateway", 0.0), (f"{service}.ecr.api", "Interface", 2 * 0.01)):
            endpoint = ec2.create_vpc_endpoint(
                VpcId=self.vpc,
                ServiceName=name,
                VpcEndpointType=kind,
                TagSpecifications=self.spec("vpc-endpoint"),
                **({"SubnetIds": self.subnets} if kind == "Interface" else {}),
            )["VpcEndpoint"]["VpcEndpointId"]
            self.set.add("VPC endpoint", endpoint, usd, pulumi_id=endpoint)
        self.group = ec2.create_security_group(
            GroupName=f"{self.names.short}-endpoints",
            Description="-",
            VpcId=self.vpc,
            TagSpecifications=self.spec("security-group"),
        )["GroupId"]
        self.set.add("security group", self.group, pulumi_id=self.group)
        made = ec2.create_security_group(
            GroupName=f"k8s-elb-{self.names.short}",
            Description="-",
            VpcId=self.vpc,
            TagSpecifications=[{"ResourceType": "security-group", "Tags": pairs(self.controllers)}],
        )["GroupId"]
        self.set.add("security group", made)

    def cluster(self) -> None:
        eks, name = self.client("eks"), self.names.cluster
        role = f"arn:aws:iam::111122223333:role/{self.set.role}"
        eks.create_cluster(
            name=name,
            roleArn=role,
            resourcesVpcConfig={"subnetIds": self.subnets},
            tags=self.tags,
            version="1.35",
        )
        self.set.add("EKS cluster", name, 0.10, pulumi_id=name)
        group = f"{self.names.short}-gpu"
        eks.create_nodegroup(
            clusterName=name,
            nodegroupName=group,
            subnets=self.subnets,
            nodeRole=role,
            scalingConfig={"minSize": 0, "maxSize": 3, "desiredSize": 1},
            tags=self.tags,
        )
        self.set.add("EKS node group", f"{name}/{group}", pulumi_id=f"{name}:{group}")

    def compute(self) -> None:
        ec2, scaling = self.client("ec2"), self.client("autoscaling")
        template = ec2.create_launch_template(
            LaunchTemplateName=f"{self.names.short}-gpu",
            LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "g6e.2xlarge"},
            TagSpecifications=self.spec("launch-template"),
        )["LaunchTemplate"]["LaunchTemplateId"]
        self.set.add("launch template", template, pulumi_id=template)
        scaling.create_auto_scaling_group(
            AutoScalingGroupName=f"eks-{self.names.short}",
            LaunchTemplate={"LaunchTemplateId": template, "Version": "$Latest"},
            MinSize=0,
            MaxSize=3,
            DesiredCapacity=0,
            VPCZoneIdentifier=",".join(self.subnets),
            Tags=[{"Key": "eks:cluster-name", "Value": self.names.cluster, "PropagateAtLaunch": True}],
        )
        self.set.add("auto scaling group", f"eks-{self.names.short}")
        node = {"eks:cluster-name": self.names.cluster}
        instance = ec2.run_instances(
            ImageId="ami-12c6146b",
            InstanceType="g6e.2xlarge",
            MinCount=1,
            MaxCount=1,
            SubnetId=self.subnets[0],
            TagSpecifications=[
                *self.spec("instance", node),
                *self.spec("volume", node),
                *self.spec("network-interface", node),
            ],
        )["Instances"][0]
        self.set.add("instance", instance["InstanceId"], G6E_2XLARGE)
        root = instance["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
        shape = ec2.describe_volumes(VolumeIds=[root])["Volumes"][0]
        assert (shape["VolumeType"], shape["Size"]) == ("gp2", 8)
        self.set.add("volume", root, 8 * 0.10 / HOURS)
        interface = ec2.create_network_interface(
            SubnetId=self.subnets[0],
            Groups=[self.group],
            Description=f"aws-K8S-{instance['InstanceId']}",
            TagSpecifications=[
                {
                    "ResourceType": "network-interface",
                    "Tags": pairs(
                        {
                            "node.k8s.amazonaws.com/instance_id": instance["InstanceId"],
                            "cluster.k8s.amazonaws.com/name": self.names.cluster,
                        }
                    ),
                }
            ],
        )["NetworkInterface"]["NetworkInterfaceId"]
        self.set.add("network interface", interface)
        capacity = f"cr-{abs(hash(self.names.cluster)) % 16**17:017x}"
        earlier = self._front.answers["ec2.DescribeCapacityReservations"]({})["CapacityReservations"]
        # moto knows no reservations; the front answers for all accounts alike, so ours carries its owner's tags.
        made = [*earlier, reservation(capacity, tags=self.tags)]
        self._front.answers["ec2.DescribeCapacityReservations"] = lambda _: {"CapacityReservations": made}
        self.set.add("capacity reservation", capacity, G6E_2XLARGE)

    def balancers(self) -> None:
        elb, classic = self.client("elbv2"), self.client("elb")
        tags = pairs({"elbv2.k8s.aws/cluster": self.names.cluster})
        balancer = elb.create_load_balancer(
            Name=f"k8s-{self.names.short}", Subnets=self.subnets, Type="network", Tags=tags
        )
        arn = balancer["LoadBalancers"][0]["LoadBalancerArn"]
        self.set.add("load balancer", arn, 0.0225)
        group = elb.create_target_group(
            Name=f"k8s-{self.names.short}", Protocol="TCP", Port=80, VpcId=self.vpc, Tags=tags
        )["TargetGroups"][0]["TargetGroupArn"]
        self.set.add("target group", group)
        name = f"a-{self.names.short}"
        classic.create_load_balancer(
            LoadBalancerName=name,
            Listeners=[{"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 80}],
            Subnets=self.subnets[:1],
            Tags=pairs(self.controllers),
        )
        self.set.add("classic load balancer", name, 0.025)

    def storage(self) -> None:
        ec2, s3, ecr = self.client("ec2"), self.client("s3"), self.client("ecr")
        claim = ec2.create_volume(
            AvailabilityZone=f"{self.region}a",
            Size=100,
            VolumeType="gp3",
            Iops=4000,
            Throughput=500,
            TagSpecifications=[{"ResourceType": "volume", "Tags": pairs(self.controllers)}],
        )["VolumeId"]
        self.set.add("volume", claim, (100 * 0.08 + 1000 * 0.005 + 375 * 0.04) / HOURS)
        snapshot = ec2.create_snapshot(VolumeId=claim, TagSpecifications=self.spec("snapshot"))["SnapshotId"]
        self.set.add("snapshot", snapshot, 100 * 0.05 / HOURS)
        earlier = self._front.answers["ec2.DescribeFastSnapshotRestores"]({})["FastSnapshotRestores"]
        restore = {"SnapshotId": snapshot, "AvailabilityZone": f"{self.region}a", "State": "enabled"}
        made = [*earlier, restore]
        self._front.answers["ec2.DescribeFastSnapshotRestores"] = lambda _: {"FastSnapshotRestores": made}
        self.set.add("fast snapshot restore", f"{snapshot}/{self.region}a", 0.75)

        bucket = self.names.bucket
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": self.region})
        if self.tags:
            s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": pairs(self.tags | {"bucket": bucket})})
        s3.put_object(Bucket=bucket, Key="models/a", Body=b"x" * 2_000_000)
        self.set.add("bucket", bucket, 2e6 / 1e9 * 0.023 / HOURS, pulumi_id=bucket)
        upload = s3.create_multipart_upload(Bucket=bucket, Key="models/b")["UploadId"]
        s3.upload_part(Bucket=bucket, Key="models/b", UploadId=upload, PartNumber=1, Body=b"y" * 5_242_880)
        self.set.add("unfinished upload", f"{bucket}/models/b#{upload}", 5_242_880 / 1e9 * 0.023 / HOURS)

        repository = f"{self.names.cluster}/vllm-openai"
        ecr.create_repository(repositoryName=repository)
        kind = "application/vnd.docker.distribution.manifest.v2+json"
        layers = [{"mediaType": "layer", "size": 1_000_000_000, "digest": "sha256:" + "a" * 64}]
        image = {"schemaVersion": 2, "mediaType": kind, "config": layers[0] | {"size": 100}, "layers": layers}
        put = ecr.put_image(repositoryName=repository, imageManifest=json.dumps(image), imageTag="v0.27.1")
        size = ecr.describe_images(repositoryName=repository)["imageDetails"][0].get("imageSizeInBytes", 0)
        assert put["image"]["repositoryName"] == repository
        self.set.add("ECR repository", repository, size / 1e9 * 0.10 / HOURS)

    def rest(self) -> None:
        logs, kms, secrets = self.client("logs"), self.client("kms"), self.client("secretsmanager")
        name = f"/aws/eks/{self.names.cluster}/cluster"
        logs.create_log_group(logGroupName=name, **({"tags": self.tags} if self.tags else {}))
        self.set.add("log group", name, pulumi_id=name)
        insights = f"/aws/containerinsights/{self.names.cluster}/performance"
        logs.create_log_group(logGroupName=insights)
        self.set.add("log group", insights)

        for pending, usd in ((False, 1.0 / HOURS), (True, 0.0)):
            key = kms.create_key(Tags=[{"TagKey": key, "TagValue": value} for key, value in self.tags.items()])
            key_id = key["KeyMetadata"]["KeyId"]
            if pending:
                kms.schedule_key_deletion(KeyId=key_id, PendingWindowInDays=7)
            self.set.add("KMS key", key_id, usd, pulumi_id=key_id)

        arn = secrets.create_secret(Name=self.names.secret, SecretString="-", Tags=pairs(self.tags))["ARN"]
        self.set.add("secret", self.names.secret, 0.40 / HOURS, pulumi_id=arn)

        scheduler, group = self.client("scheduler"), f"{self.names.short}-expiry"
        scheduler.create_schedule_group(Name=group, **({"Tags": pairs(self.tags)} if self.tags else {}))
        scheduler.create_schedule(
            Name="nodes-8h",
            GroupName=group,
            ScheduleExpression="at(2030-01-01T00:00:00)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={
                "Arn": "arn:aws:scheduler:::aws-sdk:autoscaling:updateAutoScalingGroup",
                "RoleArn": "arn:aws:iam::1:role/x",
            },
        )
        self.set.add("schedule", f"{group}/nodes-8h", pulumi_id=f"{group}/nodes-8h")


def pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as most services take them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]
