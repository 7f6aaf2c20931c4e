"""Taking one stack down, stage by stage. Each starts from what is there now, so it can be run again at any point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from botocore.exceptions import ClientError

from infra.accounts import APPLICATION
from scripts import gpu_groups
from scripts.account.found import Found
from scripts.account.kinds.instances import ALIVE
from scripts.account.refusals import is_gone, told
from scripts.account.session import Account, Clients
from scripts.cluster.api import KubernetesApi, Unreachable
from scripts.deployed.backend import Backend, EngineRefused
from scripts.deployed.state import Resource, State
from scripts.dismantling import cluster_things, holders
from scripts.dismantling.stages import NODE_GROUP, Act, Stage, stages
from scripts.dismantling.sweep import Sweep
from scripts.failure import Failure
from scripts.gpu_groups import GpuGroup
from scripts.waiting import Patience, Say, TimedOut, wait_for

ATTEMPTS = 3
"""Destroys of one stage: after the first, what a controller leaked is swept and the rest is tried again."""
NETWORK = frozenset({"aws:ec2/securityGroup:SecurityGroup", "aws:ec2/subnet:Subnet", "aws:ec2/vpc:Vpc"})
"""Types that a leaked network interface keeps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How long each kind of wait may take.

    Attributes:
        controllers: to take away load balancers and volumes, minutes each.
        nodes: EKS drains for up to 15 minutes before EC2 terminates.
        sweep: detached interfaces are let go within a few minutes.
    """

    controllers: Patience = field(default_factory=lambda: Patience(limit_s=600))
    nodes: Patience = field(default_factory=lambda: Patience(limit_s=1_200))
    sweep: Patience = field(default_factory=lambda: Patience(limit_s=900))


class Dismantling:
    """One stack being taken down.

    Args:
        account: signed in, and proven to be the stack's.
        backend: where its state is.
        state: as it was when the verb began; says account, region and environment.
        api: the environment's cluster; None when there is no way to it.
        say: told what is done.
        limits: of the waits.
        cluster_gone: nobody expects the cluster to answer; what is inside it is forgotten.
    """

    def __init__(
        self,
        account: Account,
        backend: Backend,
        state: State,
        api: KubernetesApi | None,
        *,
        say: Say,
        limits: Limits,
        cluster_gone: bool = False,
    ) -> None:
        self._account, self._backend, self._api, self._say = account, backend, api, say
        self._began, self._stack, self._region = state, state.stack, state.region or ""
        self._environment = state.environment or state.stack
        self._is_environment = self._environment == self._stack
        self._namespace = self._stack.removeprefix(f"{self._environment}-")
        self._limits, self._cluster_gone = limits, cluster_gone
        self._sweep = Sweep(account, self._region, self._environment)

    @property
    def _clients(self) -> Clients:
        return self._account.region(self._region)

    @property
    def _cluster(self) -> str:
        return f"{APPLICATION}-{self._environment}"

    def run(self) -> None:
        """Every stage, in order.

        Raises:
            Failure: a stage could not be carried out; says what holds it and how to go on.
            BadInput: the credentials stopped working.
        """
        self._settle_cluster()
        for number, stage in enumerate(every := stages(self._began), start=1):
            self._say(f"{self._stack} [{number}/{len(every)}] {stage.title}")
            match stage.act:
                case Act.DESTROY:
                    self._destroy(stage)
                case Act.CONTROLLERS:
                    self._controllers()
                case Act.NODES:
                    self._nodes()
                case Act.SWEEP:
                    self._sweep.remove(patience=self._limits.sweep, say=self._say)

    # ---- the cluster ------------------------------------------------------------------------------------------------

    def _settle_cluster(self) -> None:
        """Finds out whether the cluster answers, and refuses to forget its objects while it is only out of reach."""
        if self._api is None or not self._exists():
            self._api = None
            return
        try:
            self._api.get("/version")
        except Unreachable as error:
            self._api = None
            if self._is_environment or self._cluster_gone:
                self._say(f"{error}; going on without it, since what is inside goes with it")
                return
            raise Failure(
                f"{error}\n  but EKS says that {self._cluster} is there: its objects would be left behind in it\n"
                "  to go on: reach it (VPN, environment.access.public_cidrs) and run the same command again; or add "
                "--cluster-gone to forget them"
            ) from error

    def _exists(self) -> bool:
        with told(f"asking for cluster {self._cluster}"):
            try:
                self._clients.eks.describe_cluster(name=self._cluster)
            except ClientError as error:
                if is_gone(error):
                    return False
                raise
        return True

    def _controllers(self) -> None:
        """Objects behind which controllers made things go first, then the things are waited for."""
        api = self._api
        if api is not None:
            self._remove_objects(api)
        namespace = None if self._is_environment else self._namespace
        try:
            wait_for(
                "controllers to take away what they made",
                lambda: [f"{found.kind} {found.id}" for found in self._made(namespace)],
                patience=self._limits.controllers,
                say=self._say,
                holders=lambda _: ["the controller that made them did not take them away"],
                go_on="look at the controller's log, or remove them (the commands are in `coldstart audit`), then run "
                "the same command again",
            )
        except TimedOut as error:
            if not self._is_environment:
                raise
            self._say(f"{error}\ngoing on: what is left is swept once the cluster is gone")

    def _made(self, namespace: str | None) -> Sequence[Found]:
        """What controllers take away by themselves: not interfaces and groups, which go with nodes and cluster."""
        going = {"load balancer", "classic load balancer", "target group", "volume"}
        if self._api is None and self._is_environment:
            return ()  # nobody is left who could take them away; they are swept later
        return [found for found in self._sweep.found(namespace=namespace) if found.kind in going]

    def _remove_objects(self, api: KubernetesApi) -> None:
        def left() -> Sequence[cluster_things.ClusterThing]:
            if self._is_environment:
                return cluster_things.of_cluster(api)
            return cluster_things.of_namespace(api, self._namespace)

        for thing in left():
            self._say(f"deleting {thing}")
            cluster_things.remove(api, thing)
        wait_for(
            "objects with cloud things behind them to be gone",
            lambda: [str(thing) for thing in left()],
            patience=self._limits.controllers,
            say=self._say,
            holders=lambda _: [thing.holder for thing in left()],
            go_on="see that the controller runs (kubectl get pods -A), or take the finalizer away (kubectl patch), "
            "then run the same command again",
        )

    # ---- nodes ------------------------------------------------------------------------------------------------------

    def _nodes(self) -> None:
        groups = self._groups()
        ids = {name for group in groups for name in group.running} | set(self._instances())
        for group in groups:
            if not group.asleep:
                self._say(f"{group.name}: {group.sizes} nodes to zero")
                gpu_groups.hold(self._clients, group)
        wait_for(
            "EC2 to terminate the instances",
            lambda: self._alive(sorted(ids)),
            patience=self._limits.nodes,
            say=self._say,
            holders=self._why_alive,
            go_on="`kubectl get pods -o wide` shows which pod a drain waits for; `aws ec2 terminate-instances` ends an "
            "instance at once; then run the same command again",
        )

    def _groups(self) -> Sequence[GpuGroup]:
        """An environment takes every node group of its cluster along, a model only its own."""
        every = gpu_groups.in_cluster(self._clients, self._cluster, self._environment)
        return every if self._is_environment else [group for group in every if group.stack == self._stack]

    def _instances(self) -> Sequence[str]:
        """Instances that carry the stack's tags, or for an environment those of its cluster."""
        key, value = ("eks:cluster-name", self._cluster) if self._is_environment else ("stack", self._stack)
        filters = [
            {"Name": f"tag:{key}", "Values": [value]},
            {"Name": "instance-state-name", "Values": list(ALIVE)},
        ]
        if not self._is_environment:
            filters.append({"Name": "tag:application", "Values": [APPLICATION]})
        with told("looking for instances"):
            pages = self._clients.ec2.get_paginator("describe_instances").paginate(Filters=filters)  # pyright: ignore[reportArgumentType] - dicts of the right shape
            return [
                each.get("InstanceId", "")
                for page in pages
                for found in page["Reservations"]
                for each in found.get("Instances", [])
            ]

    def _alive(self, ids: Sequence[str]) -> Sequence[str]:
        if not ids:
            return ()
        filters = [
            {"Name": "instance-id", "Values": list(ids)},
            {"Name": "instance-state-name", "Values": list(ALIVE)},
        ]
        with told("asking for the state of instances"):
            pages = self._clients.ec2.get_paginator("describe_instances").paginate(Filters=filters)  # pyright: ignore[reportArgumentType] - as above
            return [
                f"{each.get('InstanceId', '')} ({each.get('State', {}).get('Name', '?')})"
                for page in pages
                for found in page["Reservations"]
                for each in found.get("Instances", [])
            ]

    def _why_alive(self, left: Sequence[str]) -> Sequence[str]:
        return [f"{name}: EKS drains its pods first, or a termination hook is waiting" for name in left]

    # ---- the engine -------------------------------------------------------------------------------------------------

    def _destroy(self, stage: Stage) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            state = self._backend.state(self._stack)
            targets = stage.targets(state)
            if not targets:
                return
            self._refuse_live_nodes(targets)
            try:
                urns = [] if stage.picks is None else [target.urn for target in targets]
                self._backend.destroy(self._stack, targets=urns, tell=self._say)
            except EngineRefused as refused:
                if not self._mended(refused, state, last=attempt == ATTEMPTS):
                    raise Failure(self._explained(refused, state)) from refused
            else:
                return

    def _refuse_live_nodes(self, targets: Sequence[Resource]) -> None:
        """The last look before node groups go: a node may have come back meanwhile."""
        if any(target.type == NODE_GROUP for target in targets) and self._instances():
            self._nodes()

    def _mended(self, refused: EngineRefused, state: State, *, last: bool) -> bool:
        """Whether something was found and done that makes another attempt worth it."""
        if last:
            return False
        if refused.lock is not None:
            if not refused.lock.stale:
                return False
            self._say(
                f"the command that held {self._stack} (pid {refused.lock.pid}) no longer runs: taking its lock away"
            )
            self._backend.unlock(self._stack)
            return True
        failed = [resource for resource in state.resources if resource.urn in refused.failed]
        if self._forgotten([resource.urn for resource in failed if not resource.is_kubernetes]):
            return True
        if any(resource.type in NETWORK for resource in failed) and not self._exists():
            self._say("looking for network interfaces and groups that controllers left behind")
            return self._sweep.remove(patience=self._limits.sweep, say=self._say) > 0
        return False

    def _forgotten(self, urns: Sequence[str]) -> bool:
        """Whether some of what could not be deleted was gone, and has left the state.

        Deleting a thing that is gone succeeds for most types. Those that live in another thing fail when that one is
        gone: of an Auto Scaling group's tags AWS says "AutoScalingGroup name not found", which the provider passes on.
        """
        if not urns:
            return False
        self._say("asking whether what could not be deleted is still there")
        try:
            self._backend.forget_gone(self._stack, urns, tell=self._say)
        except EngineRefused as refused:
            self._say(str(refused))
        left = {resource.urn for resource in self._backend.state(self._stack).resources}
        return not left.issuperset(urns)

    def _explained(self, refused: EngineRefused, state: State) -> str:
        """What the engine could not delete, what holds each, and how to go on."""
        if refused.lock is not None:
            return (
                f"{refused}\n  held by process {refused.lock.pid} on {refused.lock.host}\n"
                f"  to go on: wait for it; if it no longer runs: pulumi cancel --stack {self._stack}"
            )
        lines = [str(refused)]
        for resource in state.resources:
            if resource.urn in refused.failed:
                lines.append(f"  {resource.type} {resource.name} ({resource.id})")
                lines += [f"    held by {why}" for why in holders.of_resource(self._clients, self._api, resource)]
        lines.append("  to go on: free what is named, or wait a few minutes, and run the same command again")
        return "\n".join(lines)
