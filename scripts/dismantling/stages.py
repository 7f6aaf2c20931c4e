"""In which order a stack goes: what holds cloud things first, its nodes next, its network last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scripts.deployed.state import PROVIDER, Resource, State

NAMESPACE = "kubernetes:core/v1:Namespace"
RELEASE = "kubernetes:helm.sh/v3:Release"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
ADDON = "aws:eks/addon:Addon"
CLUSTER = "aws:eks/cluster:Cluster"
BUCKET = "aws:s3/bucket:Bucket"


class Act(StrEnum):
    """What a stage does."""

    DESTROY = "destroy"
    CONTROLLERS = "controllers"
    NODES = "nodes"
    SWEEP = "sweep"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One stage.

    Attributes:
        title: for a person.
        picks: for `destroy`: which resources; None is all that is left.
    """

    title: str
    act: Act
    picks: Callable[[Resource], bool] | None = None

    def targets(self, state: State) -> Sequence[Resource]:
        """What it destroys of a state. Providers go with the last stage, since the others still need them."""
        if self.act is not Act.DESTROY:
            return ()
        if self.picks is None:
            return [resource for resource in state.resources if resource.id]
        picks = self.picks
        return [each for each in state.resources if not each.type.startswith(PROVIDER) and picks(each)]


def of_type(token: str) -> Callable[[Resource], bool]:
    """Picks resources of one type."""
    return lambda resource: resource.type == token


def is_workload(resource: Resource) -> bool:
    """Everything inside the cluster but its controllers, and the namespaces that the others are in."""
    return resource.is_kubernetes and resource.type not in (RELEASE, NAMESPACE)


WORKLOADS = Stage(title="workloads and scaled objects", act=Act.DESTROY, picks=is_workload)
CONTROLLERS = Stage(title="load balancers, volumes and node claims that controllers made", act=Act.CONTROLLERS)
NODES = Stage(title="nodes to zero, until EC2 says they are terminated", act=Act.NODES)

OF_A_MODEL = (
    WORKLOADS,
    CONTROLLERS,
    NODES,
    Stage(title="node groups", act=Act.DESTROY, picks=of_type(NODE_GROUP)),
    Stage(title="namespace, identity and what else is left", act=Act.DESTROY),
)
OF_AN_ENVIRONMENT = (
    WORKLOADS,
    CONTROLLERS,
    Stage(title="KEDA and the autoscaler", act=Act.DESTROY, picks=of_type(RELEASE)),
    NODES,
    Stage(title="node groups", act=Act.DESTROY, picks=of_type(NODE_GROUP)),
    Stage(title="add-ons", act=Act.DESTROY, picks=of_type(ADDON)),
    Stage(title="cluster", act=Act.DESTROY, picks=of_type(CLUSTER)),
    Stage(title="what controllers left behind", act=Act.SWEEP),
    Stage(title="endpoints, network and what else is left", act=Act.DESTROY),
)


def stages(state: State) -> Sequence[Stage]:
    """The stages of a stack."""
    return OF_AN_ENVIRONMENT if state.environment == state.stack else OF_A_MODEL
