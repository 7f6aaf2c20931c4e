"""Fixtures of the tests on the real Pulumi engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.accounts import bucket_name
from infra.specs import staged_of
from infra.stack_file import read
from tests.pulumi.workspace import Workspace, copy_of_this_project, small_project
from tests.standin.cloud import Cloud
from tests.standin.processes import Moto
from tests.toolchain.control_plane import ControlPlane
from tests.toolchain.engines import TOOLS

MakeWorkspace = Callable[[str], Workspace]


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    with Moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that knows KEDA's objects: the shipped stacks are tested with `addons.keda: present`."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as running:
        running.define(TOOLS / "definitions")
        yield running


@pytest.fixture
def small_workspace(tmp_path: Path, moto: Moto, plane: ControlPlane) -> MakeWorkspace:
    """Makes a workspace around a program of one file; its clouds start empty."""

    def make(program: str) -> Workspace:
        moto.reset()
        return Workspace(tmp_path, small_project(tmp_path / "project", program), moto=moto, plane=plane)

    return make


@pytest.fixture
def workspace(tmp_path: Path, moto: Moto, plane: ControlPlane) -> Workspace:
    """This project's program and stack files, copied so that a test may edit them; its clouds start empty."""
    moto.reset()
    return ready_to_use(Workspace(tmp_path, copy_of_this_project(tmp_path / "project"), moto=moto, plane=plane))


def ready_to_use(workspace: Workspace) -> Workspace:
    """The charts of KEDA and the autoscaler can't be fetched without a network: they are said to be there."""
    for addon in ("keda", "cluster_autoscaler"):
        workspace.edit("dev", f"environment.addons.{addon}", "present")
    return workspace


def stage(workspace: Workspace, *models: str) -> None:
    """Puts a manifest of each model into the environment's bucket: without one no model comes up."""
    cloud = Cloud(workspace.moto.endpoint, "us-west-2")
    for name in models:
        stack = read(name, workspace.project / "infra" / "stacks")
        assert stack.model is not None
        key = staged_of(stack.model).manifest_key
        put_object(cloud, bucket_name(stack), key, b"{}")


def put_object(cloud: Cloud, bucket: str, key: str, body: bytes) -> None:
    """Puts an object. The bucket's policy is lifted meanwhile: moto takes "deny without TLS" for "deny"."""
    policy = cloud.call("s3.GetBucketPolicy", {"Bucket": bucket})["Policy"]
    cloud.call("s3.DeleteBucketPolicy", {"Bucket": bucket})
    cloud.call("s3.PutObject", {"Bucket": bucket, "Key": key, "Body": body})
    cloud.call("s3.PutBucketPolicy", {"Bucket": bucket, "Policy": policy})
