"""Which change replaces a resource, which updates it, and which is none."""

from __future__ import annotations

import pytest

from tests.standin.differences import Change, differences, inside
from tests.standin.kinds import kind_of
from tests.standin.wire import UNKNOWN, Properties

NODE_GROUP = kind_of("aws:eks/nodeGroup:NodeGroup")
BUCKET_POLICY = kind_of("aws:s3/bucketPolicy:BucketPolicy")


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ({"amiType": "A"}, {"amiType": "B"}, [Change("amiType", "update", replaces=True)]),
        ({"labels": {"a": "1"}}, {"labels": {"a": "2"}}, [Change("labels.a", "update", replaces=False)]),
        ({"labels": {"a": "1"}}, {"labels": {}}, [Change("labels.a", "delete", replaces=False)]),
        ({}, {"diskSize": 20}, [Change("diskSize", "add", replaces=True)]),
        (
            {"launchTemplate": {"id": "lt-1", "version": "1"}},
            {"launchTemplate": {"id": "lt-1", "version": "2"}},
            [Change("launchTemplate.version", "update", replaces=False)],
        ),
        (
            {"launchTemplate": {"id": "lt-1", "version": "1"}},
            {"launchTemplate": {"id": "lt-2", "version": "1"}},
            [Change("launchTemplate.id", "update", replaces=True)],
        ),
        ({"launchTemplate": {"id": "lt-1"}}, {}, [Change("launchTemplate", "delete", replaces=True)]),
        ({"subnetIds": ["a", "b"]}, {"subnetIds": ["b", "a"]}, []),
        ({"subnetIds": ["a", "b"]}, {"subnetIds": ["a", "c"]}, [Change("subnetIds[1]", "update", replaces=True)]),
        ({"version": "1.36"}, {"version": UNKNOWN}, [Change("version", "update", replaces=False)]),
        (
            {"nodeGroupName": "n", "__defaults": ["nodeGroupName"]},
            {"nodeGroupName": "n", "__defaults": []},
            [],
        ),
    ],
)
def test_changes_of_a_node_group(old: Properties, new: Properties, changes: list[Change]) -> None:
    assert differences(NODE_GROUP, old, new) == changes


def test_documents_are_compared_by_what_they_say() -> None:
    old = {"policy": '{"Version":"2012-10-17","Statement":[]}'}
    assert differences(BUCKET_POLICY, old, {"policy": '{"Statement": [], "Version": "2012-10-17"}'}) == []
    assert differences(BUCKET_POLICY, old, {"policy": "{}"}) == [Change("policy", "update", replaces=False)]


def test_a_default_is_the_same_as_nothing() -> None:
    role = kind_of("aws:iam/role:Role")
    assert differences(role, {}, {"maxSessionDuration": 3600, "path": "/"}) == []
    assert differences(role, {"path": "/"}, {"path": "/x/"}) == [Change("path", "update", replaces=True)]


def test_a_list_that_is_no_set_keeps_its_order() -> None:
    template = kind_of("aws:ec2/launchTemplate:LaunchTemplate")
    old = {"blockDeviceMappings": [{"deviceName": "a"}, {"deviceName": "b"}]}
    new = {"blockDeviceMappings": [{"deviceName": "b"}, {"deviceName": "a"}]}
    assert [change.path for change in differences(template, old, new)] == [
        "blockDeviceMappings[0].deviceName",
        "blockDeviceMappings[1].deviceName",
    ]


def test_what_is_left_to_others_includes_what_is_inside_it() -> None:
    ignored = ["scalingConfig.desiredSize", "tags", 'labels["a/b"]']
    assert inside(ignored, "scalingConfig.desiredSize")
    assert inside(ignored, "tags.owner")
    assert inside(ignored, "labels.a/b")
    assert not inside(ignored, "tagsAll.owner")
    assert not inside(ignored, "scalingConfig.maxSize")
