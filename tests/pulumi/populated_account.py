"""An account as people leave it: strangers in it, an environment with a model, and what a cluster leaves behind."""

from __future__ import annotations

from typing import Any

from scripts.account.session import Account
from scripts.deployed.backend import Backend
from scripts.dismantling.run import Limits
from scripts.teardown import Teardown, tear_down
from scripts.waiting import Patience
from tests.pulumi.conftest import stage
from tests.pulumi.controllers import scale_deployment, scale_nodes, wait_until_ready
from tests.pulumi.whole_account import everything, strangers
from tests.pulumi.workspace import Workspace
from tests.standin.cloud import Cloud
from tests.toolchain.control_plane import ControlPlane

MODEL = "dev-llama-3-1-8b"
SLUG = "llama-3-1-8b"
BUCKET = "coldstart-dev-111122223333-us-west-2"
QUICK = Limits(
    controllers=Patience(limit_s=2, every_s=0.05),
    nodes=Patience(limit_s=20, every_s=0.05),
    sweep=Patience(limit_s=20, every_s=0.05),
)
OWNED = [{"Key": "kubernetes.io/cluster/coldstart-dev", "Value": "owned"}]


class World:
    """An account with strangers in it, an environment and a model on it, and the verb that takes both down."""

    def __init__(self, workspace: Workspace, plane: ControlPlane) -> None:
        self.workspace, self.plane = workspace, plane
        self.cloud = Cloud(workspace.moto.endpoint, "us-west-2")
        self.stack_files = workspace.project / "infra" / "stacks"
        strangers(self.cloud)
        self.theirs = everything(self.cloud)
        workspace.edit(MODEL, "model.cost", {"expires_after": "8h"})
        workspace.stack("dev").up()
        stage(workspace, MODEL)
        workspace.stack(MODEL).up()
        # moto takes "deny without TLS" for "deny": an audit could not look into the bucket.
        self.cloud.call("s3.DeleteBucketPolicy", {"Bucket": BUCKET})
        self.cloud.call("s3.PutObject", {"Bucket": BUCKET, "Key": "models/m/r/weights", "Body": b"weights"})
        self.said: list[str] = []

    def start_a_replica(self) -> None:
        """What KEDA and the autoscaler do when there is work."""
        (group,) = self.workspace.stack(MODEL, create=False).outputs()["nodeGroups"]
        scale_deployment(self.plane.api, SLUG, SLUG, 1)
        scale_nodes(self.workspace, self.plane, group, 1)
        wait_until_ready(self.plane.api, SLUG, SLUG, 1)

    def expose(self) -> None:
        """A Service of the model with a load balancer behind it, as somebody adds by hand."""
        self.plane.api.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {
                    "name": "front",
                    "namespace": SLUG,
                    "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
                },
                "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "x"}},
            }
        )
        self.cloud.call(
            "elb.CreateLoadBalancer",
            {
                "LoadBalancerName": "a0front",
                "Listeners": [{"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 80}],
                "Subnets": [self.subnet],
                "Tags": [*OWNED, {"Key": "kubernetes.io/service-name", "Value": f"{SLUG}/front"}],
            },
        )

    def controller_comes_back(self) -> None:
        """Carries out what the service controller missed."""
        self.cloud.call("elb.DeleteLoadBalancer", {"LoadBalancerName": "a0front"})
        # moto makes a group for a balancer without one, and leaves it.
        made = [{"Name": "vpc-id", "Values": [self.vpc]}, {"Name": "group-name", "Values": ["default_elb_*"]}]
        for group in self.cloud.call("ec2.DescribeSecurityGroups", {"Filters": made})["SecurityGroups"]:
            self.cloud.call("ec2.DeleteSecurityGroup", {"GroupId": group["GroupId"]})
        self.plane.api.request(
            "PATCH",
            f"/api/v1/namespaces/{SLUG}/services/front",
            body={"metadata": {"finalizers": None}},
            headers={"Content-Type": "application/merge-patch+json"},
        )

    def leak(self) -> None:
        """What a cluster leaves behind: a claim's volume, an interface of the CNI, a balancer's group, logs."""

        def spec(kind: str, tags: list[dict[str, str]]) -> list[dict[str, Any]]:
            return [{"ResourceType": kind, "Tags": tags}]

        volume = {"AvailabilityZone": "us-west-2a", "Size": 50, "TagSpecifications": spec("volume", OWNED)}
        self.cloud.call("ec2.CreateVolume", volume)
        group = {"GroupName": "k8s-elb-a0web", "Description": "-", "VpcId": self.vpc}
        self.cloud.call("ec2.CreateSecurityGroup", group | {"TagSpecifications": spec("security-group", OWNED)})
        cni = [{"Key": "node.k8s.amazonaws.com/instance_id", "Value": "i-0f"}]
        interface = {"SubnetId": self.subnet, "Description": "aws-K8S-i-0f"}
        self.cloud.call("ec2.CreateNetworkInterface", interface | {"TagSpecifications": spec("network-interface", cni)})
        self.cloud.call("logs.CreateLogGroup", {"logGroupName": "/aws/containerinsights/coldstart-dev/performance"})

    @property
    def vpc(self) -> str:
        (record,) = self.workspace.aws("aws:ec2/vpc:Vpc")
        return record.id

    @property
    def subnet(self) -> str:
        return self.workspace.stack("dev", create=False).outputs()["private_subnets"]["us-west-2a"]

    def say(self, line: str) -> None:
        self.said.append(line)

    def down(self, plan: Teardown, account: Account, backend: Backend, **more: Any) -> None:
        tear_down(plan, account, backend, say=self.say, limits=QUICK, **more)
