"""The parts of a teardown: states read, stages picked, waits that end, what an engine said."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.account.session import Account
from scripts.cluster.api import Object
from scripts.deployed.backend import Backend, EngineRefused, Lock
from scripts.deployed.state import SECRET_KEY, State, parse
from scripts.dismantling import cluster_things
from scripts.dismantling.run import Dismantling, Limits
from scripts.dismantling.stages import OF_A_MODEL, OF_AN_ENVIRONMENT, Act, Stage, of_type, stages
from scripts.failure import Failure
from scripts.waiting import Patience, Say, TimedOut, wait_for


def exported(stack: str, *entries: dict[str, Any], pending: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """A deployment as the engine exports it: a stack, a provider, and what else is given."""
    provider = {
        "urn": f"urn:pulumi:{stack}::coldstart::pulumi:providers:aws::{stack}",
        "type": "pulumi:providers:aws",
        "id": "p",
        "custom": True,
        "inputs": {
            "region": "us-west-2",
            "allowedAccountIds": '["111122223333"]',
            "defaultTags": f'{{"tags": {{"application": "coldstart", "environment": "dev", "stack": "{stack}"}}}}',
        },
    }
    root = {
        "urn": f"urn:pulumi:{stack}::coldstart::pulumi:pulumi:Stack::coldstart-{stack}",
        "type": "pulumi:pulumi:Stack",
        "outputs": {
            "endpoint": "https://x",
            "key": {SECRET_KEY: "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "z"},
        },
    }
    return {"resources": [root, provider, *entries], "pending_operations": list(pending)}


def entry(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"urn": f"urn:pulumi:s::coldstart::{kind}::{name}", "type": kind, "id": name, "custom": True, **more}


def test_a_state_says_where_it_is_and_whose() -> None:
    state = parse("dev-llama", exported("dev-llama", entry("aws:ec2/vpc:Vpc", "vpc-1")))
    assert (state.account, state.region, state.environment) == ("111122223333", "us-west-2", "dev")
    assert state.outputs == {"endpoint": "https://x"}, "secrets are left out"
    assert state.ids == {"vpc-1", "p"}
    assert state.live


def test_a_state_of_nothing_is_not_alive() -> None:
    assert not parse("dev", {}).live
    assert not parse("dev", exported("dev")).live, "a provider alone is in no cloud"
    empty = parse("dev", {})
    assert (empty.account, empty.region, empty.environment, empty.outputs) == (None, None, None, {})


def test_what_an_interrupted_command_left_open() -> None:
    deleted = entry("aws:ec2/vpc:Vpc", "old", delete=True)
    pending = [{"type": "deleting", "resource": {"urn": "urn:x"}}]
    state = parse("dev", exported("dev", deleted, pending=pending))
    assert state.pending == [("deleting", "urn:x")]
    assert "old" not in state.ids


def test_protected_kept_and_depended_on() -> None:
    kept = entry("aws:s3/bucket:Bucket", "b", retainOnDelete=True, protect=True)
    user = entry("x:y:Z", "z", dependencies=["urn:1"], propertyDependencies={"a": ["urn:2"], "b": None})
    resources = {each.name: each for each in parse("dev", exported("dev", kept, user)).resources}
    assert (resources["b"].retain, resources["b"].protect) == (True, True)
    assert resources["z"].dependencies == {"urn:1", "urn:2"}


KINDS = [
    "kubernetes:apps/v1:Deployment",
    "kubernetes:core/v1:Namespace",
    "kubernetes:helm.sh/v3:Release",
    "aws:eks/nodeGroup:NodeGroup",
    "aws:eks/addon:Addon",
    "aws:eks/cluster:Cluster",
    "aws:ec2/vpc:Vpc",
    "aws:s3/bucket:Bucket",
]


@pytest.mark.parametrize("stack", ["dev", "dev-llama"])
@given(kinds=st.lists(st.sampled_from(KINDS), max_size=12))
def test_every_resource_goes_in_some_stage_and_providers_last(stack: str, kinds: list[str]) -> None:
    # A model has no charts: those are its environment's.
    mine = [kind for kind in kinds if stack == "dev" or "Release" not in kind]
    entries = [entry(kind, f"n{index}") for index, kind in enumerate(mine)]
    state = parse(stack, exported(stack, *entries))
    chosen = stages(state)
    assert chosen == (OF_AN_ENVIRONMENT if stack == "dev" else OF_A_MODEL)
    first = {}
    for number, stage in enumerate(chosen):
        for target in stage.targets(state):
            first.setdefault(target.urn, number)
    assert first.keys() >= {each["urn"] for each in entries}
    provider = next(urn for urn in first if "providers" in urn)
    assert first[provider] == len(chosen) - 1
    order = [
        first[each["urn"]] for kind in KINDS for each in entries if each["type"] == kind and "Namespace" not in kind
    ]
    assert order == sorted(order)


def test_nodes_are_waited_for_before_their_groups_go() -> None:
    for chosen in (OF_A_MODEL, OF_AN_ENVIRONMENT):
        acts = [stage.act for stage in chosen]
        groups = next(index for index, stage in enumerate(chosen) if stage.title == "node groups")
        assert acts.index(Act.CONTROLLERS) < acts.index(Act.NODES) < groups


# ---- waiting --------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now, self.slept = 0.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def patience(self, limit_s: float) -> Patience:
        return Patience(limit_s=limit_s, every_s=5, clock=lambda: self.now, sleep=self.sleep)


def test_a_wait_ends_when_nothing_remains_and_says_what_changes() -> None:
    clock, said = Clock(), list[str]()
    answers = iter([["a", "b"], ["a", "b"], ["b"], []])
    wait_for("things to go", lambda: next(answers), patience=clock.patience(60), say=said.append, go_on="-")
    assert said == ["waiting for things to go: a, b", "waiting for things to go: b"]
    assert clock.slept == [5, 5, 5]


def test_a_wait_that_ends_says_what_holds_and_how_to_go_on() -> None:
    clock = Clock()
    with pytest.raises(TimedOut) as caught:
        wait_for(
            "things to go",
            lambda: ["eni-1"],
            patience=clock.patience(60),
            say=lambda _: None,
            holders=lambda left: [f"whoever has {left[0]}"],
            go_on="detach it",
        )
    assert str(caught.value) == (
        "things to go: not within 60 s; still there: eni-1\n  held by whoever has eni-1\n  to go on: detach it"
    )
    assert caught.value.remaining == ["eni-1"]
    assert clock.now <= 70


def test_many_things_are_named_in_part() -> None:
    clock, said = Clock(), list[str]()
    answers = iter([[str(number) for number in range(9)], []])
    wait_for("x", lambda: next(answers), patience=clock.patience(60), say=said.append, go_on="-")
    assert said == ["waiting for x: 0, 1, 2, 3, 4 and 4 more"]


# ---- the engine's words ---------------------------------------------------------------------------------------------

LOCKED = """error: the stack is currently locked by 1 lock(s). Either wait for the other process(es) to end or delete it
  file:///s/.pulumi/locks/organization/coldstart/dev/1.json: created by root@{host} (pid {pid}) at 2026-11-30T04:00:00Z
"""


def test_a_lock_is_stale_only_on_this_machine_and_only_without_its_process() -> None:
    here = socket.gethostname()
    held = EngineRefused("destroying dev", LOCKED.format(host=here, pid=os.getpid()))
    assert held.lock == Lock(host=here, pid=os.getpid())
    assert not held.lock.stale
    dead = EngineRefused("destroying dev", LOCKED.format(host=here, pid=2**22 + 1)).lock
    assert dead is not None
    assert dead.stale
    elsewhere = EngineRefused("destroying dev", LOCKED.format(host="another-machine", pid=2**22 + 1)).lock
    assert elsewhere is not None
    assert not elsewhere.stale
    assert EngineRefused("destroying dev", "error: nothing of the kind").lock is None


def test_what_an_engine_says_is_its_errors_once() -> None:
    text = "noise\n    error: deleting urn:x: DependencyViolation\nnoise\nerror: deleting urn:x: DependencyViolation\n"
    assert str(EngineRefused("destroying dev", text)) == "destroying dev: deleting urn:x: DependencyViolation"
    assert str(EngineRefused("destroying dev", "no word of it")) == 'destroying dev: "no word of it"'


# ---- objects with something behind them -----------------------------------------------------------------------------


class Api:
    def __init__(self, objects: dict[str, list[Object]]) -> None:
        self._objects, self.deleted = objects, list[str]()

    def get(self, path: str) -> Object | None:
        raise AssertionError(path)

    def items(self, path: str, **selectors: str) -> Iterator[Object]:
        assert not selectors
        yield from self._objects.get(path, [])

    def merge(self, path: str, patch: Object) -> bool:
        raise AssertionError(path, patch)

    def delete(self, path: str) -> bool:
        self.deleted.append(path)
        return True


def test_only_what_has_a_cloud_thing_behind_it_is_taken_away() -> None:
    def named(name: str, **more: Any) -> Object:
        return {"metadata": {"name": name, "namespace": "web", **more.pop("metadata", {})}, **more}

    pool: Object = {"metadata": {"name": "gpus"}}
    going = named("gone", spec={"type": "LoadBalancer"}, metadata={"deletionTimestamp": "now", "finalizers": ["f/x"]})
    api = Api(
        {
            "/api/v1/services": [
                named("inside", spec={"type": "ClusterIP"}),
                named("front", spec={"type": "LoadBalancer"}),
                going,
            ],
            "/api/v1/persistentvolumeclaims": [named("data")],
            "/apis/karpenter.sh/v1/nodepools": [pool],
        }
    )
    things = cluster_things.of_cluster(api)
    assert [str(thing) for thing in things] == [
        "Service web/front",
        "Service web/gone",
        "PersistentVolumeClaim web/data",
        "NodePool gpus",
    ]
    for thing in things:
        cluster_things.remove(api, thing)
    assert api.deleted == [
        "/api/v1/namespaces/web/services/front",
        "/api/v1/namespaces/web/persistentvolumeclaims/data",
        "/apis/karpenter.sh/v1/nodepools/gpus",
    ], "what is going already is left to go"
    assert things[1].holder == "Service web/gone: finalizer f/x (is the controller that removes it still running?)"


# ---- what is gone already -------------------------------------------------------------------------------------------

TAG = "aws:autoscaling/tag:Tag"
TAG_URN = f"urn:pulumi:dev::coldstart::{TAG}::dev-tag"
NO_SUCH_GROUP = "error: deleting urn: ValidationError: AutoScalingGroup name not found - AutoScalingGroup x not found"


class EngineOfOneTag:
    """An engine that can't delete a tag; refreshing forgets it, leaves it, or is refused."""

    def __init__(self, *, gone: bool, refreshes: bool = True) -> None:
        self._gone, self._refreshes = gone, refreshes
        self.left = True
        self.asked: list[str] = []

    def state(self, name: str) -> State:
        return parse(name, exported(name, *([{"urn": TAG_URN, "type": TAG, "id": "x,key"}] if self.left else [])))

    def destroy(self, name: str, *, targets: Sequence[str], tell: Say) -> None:
        del name, tell
        self.asked.append("destroy")
        raise EngineRefused("destroying dev", NO_SUCH_GROUP, targets)

    def forget_gone(self, name: str, urns: Sequence[str], *, tell: Say) -> None:
        del name, tell
        assert list(urns) == [TAG_URN]
        self.asked.append("refresh")
        if not self._refreshes:
            raise EngineRefused("refreshing dev", "error: not authorized to perform autoscaling:DescribeTags")
        self.left = not self._gone


class NoAccount:
    """Nobody is asked what holds a tag."""

    def region(self, name: str) -> None:
        del name


def destroy_tag(engine: EngineOfOneTag, say: Say) -> None:
    state = engine.state("dev")
    dismantling = Dismantling(
        cast("Account", NoAccount()), cast("Backend", engine), state, None, say=say, limits=Limits()
    )
    dismantling._destroy(Stage(title="tags", act=Act.DESTROY, picks=of_type(TAG)))


def test_what_is_gone_already_is_forgotten() -> None:
    engine, said = EngineOfOneTag(gone=True), list[str]()
    destroy_tag(engine, said.append)
    assert engine.asked == ["destroy", "refresh"], "nothing is left to destroy"
    assert said == ["asking whether what could not be deleted is still there"]


@pytest.mark.parametrize("refreshes", [True, False])
def test_what_is_there_or_may_not_be_asked_for_is_told_as_before(refreshes: bool) -> None:  # noqa: FBT001 - a row
    engine, said = EngineOfOneTag(gone=False, refreshes=refreshes), list[str]()
    with pytest.raises(Failure, match=r"(?s)name not found.*autoscaling/tag:Tag dev-tag \(x,key\).*to go on: free"):
        destroy_tag(engine, said.append)
    assert engine.asked == ["destroy", "refresh"]
    assert any("not authorized to perform autoscaling:DescribeTags" in line for line in said) is not refreshes
