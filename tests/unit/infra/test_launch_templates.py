"""What an instance of a node group boots with."""

from __future__ import annotations

import base64
import tomllib

import pytest

from infra.specs import model_specs
from infra.stack_file import read
from nodeconfig.bottlerocket import user_data
from tests.unit.infra.declared_nodes import LARGE, LLAMA, MODELS, Declared, groups, templates, volumes


@pytest.mark.parametrize("stack", MODELS)
@pytest.mark.parametrize("mode", ["up", "preview"])
def test_the_template_holds_what_eks_merges_with_and_nothing_it_refuses(
    declared: Declared, stack: str, mode: str
) -> None:
    (template,) = templates(declared(stack, mode=mode)).values()
    assert "imageId" not in template.inputs  # EKS would stop merging, and the node would not know its cluster
    for refused in (
        "iamInstanceProfile",
        "networkInterfaces",
        "instanceInitiatedShutdownBehavior",
        "securityGroupNames",
    ):
        assert refused not in template.inputs
    assert "vpcSecurityGroupIds" not in template.inputs  # would take the place of the cluster's own
    assert template.inputs["updateDefaultVersion"] is True


def test_the_type_is_on_the_template_and_not_on_the_group(declared: Declared) -> None:
    """Only there can a capacity block have it, and a group takes one or the other."""
    found = declared(LLAMA)
    assert templates(found)[LLAMA].inputs["instanceType"] == "g6e.2xlarge"
    assert not {"instanceTypes", "diskSize", "remoteAccess"} & groups(found)[LLAMA].inputs.keys()


def test_no_pod_reaches_the_nodes_own_credentials(declared: Declared) -> None:
    for stack in ("dev", *MODELS):
        for template in templates(declared(stack)).values():
            assert template.inputs["metadataOptions"] == {
                "httpEndpoint": "enabled",
                "httpTokens": "required",
                "httpPutResponseHopLimit": 1,
            }


def test_the_system_volume_is_small_and_the_data_volume_is_the_specs(declared: Declared) -> None:
    for stack in MODELS:
        (template,) = templates(declared(stack)).values()
        parsed = read(stack)
        assert parsed.model is not None
        volume = model_specs(parsed, parsed.model).node.storage.volume
        assert volumes(template) == {
            "/dev/xvda": {
                "volumeType": "gp3",
                "volumeSize": 4,
                "encrypted": "true",
                "deleteOnTermination": "true",
            },
            "/dev/xvdb": {
                "volumeType": volume.kind,
                "volumeSize": volume.size_gib,
                "iops": volume.iops,
                "throughput": volume.throughput_mib_s,
                "encrypted": "true",
                "deleteOnTermination": "true",
            },
        }


def test_io2_has_iops_and_no_throughput(declared: Declared) -> None:
    changes = {"model.nodes.volume": {"kind": "io2", "size_gib": 200, "iops": 20_000}, "model.nodes.disk": "ebs"}
    (template,) = templates(declared(LARGE, changes)).values()
    data = volumes(template)["/dev/xvdb"]
    assert (data["volumeType"], data["volumeSize"], data["iops"]) == ("io2", 200, 20_000)
    assert "throughput" not in data


def test_a_data_volume_somebody_sized_is_that_size(declared: Declared) -> None:
    changes = {
        "model.nodes.disk": "ebs",
        "model.nodes.volume": {"size_gib": 300, "iops": 8_000, "throughput_mib_s": 2_000},
    }
    (template,) = templates(declared(LARGE, changes)).values()
    data = volumes(template)["/dev/xvdb"]
    assert (data["volumeSize"], data["iops"], data["throughput"]) == (300, 8_000, 2_000)


def test_a_data_volume_starts_from_a_snapshot_at_the_rate_that_is_paid_for(declared: Declared) -> None:
    snapshot = {"snapshot_id": "snap-0123456789abcdef0", "initialization_mib_s": 300}
    changes = {"model.nodes.disk": "ebs", "model.nodes.volume": snapshot}
    (template,) = templates(declared(LLAMA, changes)).values()
    data = volumes(template)["/dev/xvdb"]
    assert (data["snapshotId"], data["volumeInitializationRate"]) == ("snap-0123456789abcdef0", 300)
    assert "encrypted" not in data  # EC2 refuses it beside a snapshot; the snapshot decides
    assert "snapshotId" not in volumes(template)["/dev/xvda"]


def test_with_fast_snapshot_restore_there_is_no_rate(declared: Declared) -> None:
    changes = {"model.nodes.disk": "ebs", "model.nodes.volume": {"snapshot_id": "snap-01234567"}}
    (template,) = templates(declared(LLAMA, changes)).values()
    assert volumes(template)["/dev/xvdb"]["snapshotId"] == "snap-01234567"
    assert "volumeInitializationRate" not in volumes(template)["/dev/xvdb"]


@pytest.mark.parametrize("stack", MODELS)
def test_the_user_data_is_the_rendered_one_in_plain_toml(declared: Declared, stack: str) -> None:
    (template,) = templates(declared(stack)).values()
    text = base64.b64decode(template.inputs["userData"]).decode()
    parsed = read(stack)
    assert parsed.model is not None
    assert text == user_data(model_specs(parsed, parsed.model).node)
    assert tomllib.loads(text)["settings"]["container-runtime"] == {"snapshotter": "soci"}
    assert len(text) < 16_384  # EC2's limit before encoding


def test_system_nodes_boot_with_bottlerockets_defaults(declared: Declared) -> None:
    assert "userData" not in templates(declared("dev"))["dev-system"].inputs


@pytest.mark.parametrize("stack", MODELS)
def test_instances_volumes_and_interfaces_say_whose_they_are(declared: Declared, stack: str) -> None:
    """The provider's default tags end at the template: what EC2 makes from it has only these."""
    (template,) = templates(declared(stack)).values()
    specifications = {entry["resourceType"]: entry["tags"] for entry in template.inputs["tagSpecifications"]}
    assert set(specifications) == {"instance", "volume", "network-interface"}
    for tags in specifications.values():
        assert tags["Name"] == stack
        assert (tags["application"], tags["environment"], tags["stack"]) == ("coldstart", "dev", stack)
        assert tags["owner"] == "platform-team"
