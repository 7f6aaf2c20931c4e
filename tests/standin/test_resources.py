"""Every type of the stand-in lives its life against moto: created, read, changed in place, deleted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.standin import sdk
from tests.standin.conftest import make_world
from tests.standin.differences import differences
from tests.standin.faults import ServiceError
from tests.standin.kinds import kinds
from tests.standin.naming import with_all_tags
from tests.standin.processes import Moto
from tests.standin.resources import World
from tests.standin.services import resource_of
from tests.standin.story import IN_PLACE, STORY, Told, tell_all
from tests.standin.wire import holds_unknown


@pytest.fixture
def told(world: World) -> Told:
    """A story that the test goes on with."""
    return tell_all(world)


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """A story that tests only look at, in a moto of its own: the others are reset for each test."""
    folder = tmp_path_factory.mktemp("read-only")
    with Moto(folder) as server:
        yield tell_all(make_world(server, folder))


def test_the_story_tells_of_every_type() -> None:
    assert {token for token, _ in STORY.values()} == set(kinds())


def test_outputs_are_the_sdks_and_a_preview_knows_of_each(read_only: Told) -> None:
    for name, record in read_only.records.items():
        resource = resource_of(record.token, read_only.world)
        outputs = resource.outputs(record)
        assert set(outputs) <= sdk.outputs_of(resource.kind.sdk), name
        assert not holds_unknown(outputs), name
        before = resource.outputs_before_creation(record.inputs)
        assert set(outputs) <= set(before), name
        assert resource.kind.pure_outputs <= set(before), name


def test_what_a_preview_knows_comes_true(read_only: Told) -> None:
    for name, record in read_only.records.items():
        resource = resource_of(record.token, read_only.world)
        outputs = resource.outputs(record)
        for key, value in resource.outputs_before_creation(record.inputs).items():
            if not holds_unknown(value):
                assert outputs[key] == value, f"{name}.{key}"


def test_reading_finds_no_drift(read_only: Told) -> None:
    for name, record in read_only.records.items():
        found = resource_of(record.token, read_only.world).read(record)
        assert found is not None, name
        assert found.inputs == record.inputs, name


def test_changes_in_place_are_read_back(told: Told) -> None:
    for name in IN_PLACE:
        wanted = told.change(name)
        record = told.records[name]
        found = resource_of(record.token, told.world).read(record)
        assert found is not None, name
        assert found.inputs == wanted, name


def test_everything_can_be_deleted_in_reverse_and_is_gone(told: Told) -> None:
    for name, record in reversed(told.records.items()):
        resource = resource_of(record.token, told.world)
        resource.delete(record)
        if name not in ("versioning", "s3", "sts", "nat"):  # a bucket keeps its setting, the others stay visible
            assert resource.read(record) is None, name
    cloud = told.world.cloud
    assert told.world.records.all() == []
    assert cloud.call("eks.ListClusters", {})["clusters"] == []
    assert cloud.call("autoscaling.DescribeAutoScalingGroups", {})["AutoScalingGroups"] == []
    assert cloud.call("s3.ListBuckets", {})["Buckets"] == []


@pytest.mark.parametrize("name", ["vpc", "subnet-a", "group", "table", "address", "cluster", "role"])
def test_what_is_needed_is_not_deleted(read_only: Told, name: str) -> None:
    record = read_only.records[name]
    with pytest.raises(ServiceError, match="needs it"):
        resource_of(record.token, read_only.world).delete(record)


def test_default_tags_reach_the_service_and_are_not_the_resources_own(read_only: Told) -> None:
    vpc = read_only.records["vpc"]
    tags = read_only.world.cloud.call("ec2.DescribeVpcs", {"VpcIds": [vpc.id]})["Vpcs"][0]["Tags"]
    assert {tag["Key"]: tag["Value"] for tag in tags} == {"application": "tests", "Name": "net"}
    assert read_only.outputs["vpc"]["tagsAll"] == {"application": "tests", "Name": "net"}


def test_somebodys_change_is_drift(told: Told) -> None:
    nodes = told.records["nodes"]
    size = {"minSize": 0, "maxSize": 2, "desiredSize": 2}
    group = {"clusterName": "c", "nodegroupName": "gpu"}
    told.world.cloud.call("eks.UpdateNodegroupConfig", group | {"scalingConfig": size})
    found = resource_of(nodes.token, told.world).read(nodes)
    assert found is not None
    assert found.inputs["scalingConfig"] == size
    assert {**found.inputs, "scalingConfig": 0} == {**nodes.inputs, "scalingConfig": 0}


def test_a_bucket_is_adopted_by_its_name_alone(told: Told) -> None:
    bucket = told.records["bucket"]
    told.world.records.remove(bucket.token, bucket.id)
    resource = resource_of(bucket.token, told.world)
    found = resource.adopt("weights", bucket.id)
    assert found is not None
    assert differences(resource.kind, found.inputs, with_all_tags(resource, bucket.inputs)) == []
    assert resource.adopt("weights", "nobodys-bucket") is None


def test_a_full_bucket_is_not_deleted_unless_it_may_be_emptied(told: Told) -> None:
    bucket = told.records["bucket"]
    told.world.cloud.call("s3.PutObject", {"Bucket": bucket.id, "Key": "k", "Body": b"weights"})
    resource = resource_of(bucket.token, told.world)
    with pytest.raises(ServiceError, match="BucketNotEmpty"):
        resource.delete(bucket)
    bucket.inputs["forceDestroy"] = True
    resource.delete(bucket)
    assert told.world.cloud.call("s3.ListBuckets", {})["Buckets"] == []


def test_an_auto_scaling_group_launches_the_nodes_of_a_group(read_only: Told) -> None:
    groups = read_only.world.cloud.call("autoscaling.DescribeAutoScalingGroups", {})["AutoScalingGroups"]
    assert [(group["MinSize"], group["MaxSize"], group["DesiredCapacity"]) for group in groups] == [(0, 2, 1)]
    assert [instance["InstanceType"] for instance in groups[0]["Instances"]] == ["g6e.2xlarge"]
    tags = {tag["Key"]: tag["Value"] for tag in groups[0]["Tags"]}
    assert tags["eks:nodegroup-name"] == "gpu"
    assert tags["k8s.io/x"] == "1"
