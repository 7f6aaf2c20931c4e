"""Plays the controllers that a real cluster runs beside the program: the autoscaler, KEDA and the kubelets' rollout."""

from __future__ import annotations

from typing import Any

from tests.pulumi.workspace import Workspace
from tests.standin.cloud import Cloud
from tests.standin.node_groups import NodeGroup
from tests.standin.resources import World
from tests.standin.services import resource_of
from tests.standin.simulated_nodes import nodes_of
from tests.toolchain.control_plane import ControlPlane
from tests.toolchain.kube_api import KubeApi
from tests.toolchain.waiting import wait_until

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"


def scale_nodes(workspace: Workspace, plane: ControlPlane, group: str, size: int) -> list[dict[str, Any]]:
    """What the cluster autoscaler does: sets the desired size of the group's Auto Scaling group; EKS follows.

    Returns:
        The nodes that have joined.
    """
    cloud = Cloud(workspace.moto.endpoint, "us-west-2")
    (record,) = [each for each in workspace.aws(NODE_GROUP) if each.inputs["nodeGroupName"] == group]
    cloud.call(
        "autoscaling.SetDesiredCapacity",
        {"AutoScalingGroupName": record.facts["autoscalingGroup"], "DesiredCapacity": size},
    )
    names = {"clusterName": record.inputs["clusterName"], "nodegroupName": group}
    sizes = cloud.call("eks.DescribeNodegroup", names)["nodegroup"]["scalingConfig"]
    cloud.call("eks.UpdateNodegroupConfig", names | {"scalingConfig": sizes | {"desiredSize": size}})
    node_group = resource_of(NODE_GROUP, World(cloud=cloud, records=workspace.records, kube=plane.api))
    assert isinstance(node_group, NodeGroup)
    node_group.join(record)
    return nodes_of(plane.api, group)


def scale_deployment(api: KubeApi, namespace: str, name: str, replicas: int) -> None:
    """What KEDA does when there is work."""
    api.request(
        "PATCH",
        DEPLOYMENTS.format(namespace=namespace, name=name) + "/scale",
        body={"spec": {"replicas": replicas}},
        headers={"Content-Type": "application/merge-patch+json"},
    )


def wait_until_ready(api: KubeApi, namespace: str, name: str, replicas: int) -> list[dict[str, Any]]:
    """Waits for that many Ready replicas of a deployment; its pods."""
    path = DEPLOYMENTS.format(namespace=namespace, name=name)

    def pods() -> list[dict[str, Any]]:
        return api.items(f"/api/v1/namespaces/{namespace}/pods")

    def why_not() -> str:
        conditions = [pod["status"].get("conditions") for pod in pods()]
        return f"{replicas} of {name} Ready; pods: {conditions}"

    wait_until(
        lambda: (found := api.get(path)) is not None and found["status"].get("readyReplicas", 0) == replicas,
        what=why_not,
        patience_s=30,
    )
    return pods()
