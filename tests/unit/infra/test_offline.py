"""Evaluation without a cloud: faithful to the engine, strict where it is strict, and without a trace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pulumi
import pulumi_aws as aws
import pytest

from budget.problems import BadInput
from infra.offline import Evaluation, evaluate
from infra.offline_cloud import ACCOUNT, COMPUTED, answer, computed
from tests.unit.infra.changed_stacks import change
from tests.unit.infra.failing import failure_of

Declared = Callable[..., Evaluation]
LLAMA = "dev-llama-3-1-8b"


def provider() -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions(provider=aws.Provider("p", region="us-west-2"))


# ---- what the engine would refuse -----------------------------------------------------------------------------------


def refused(program: Callable[[Path], None], stacks: Path) -> str:
    failure, words = failure_of(lambda: evaluate("dev", directory=stacks, program=program))
    assert failure is BadInput
    return words


def twice(_: Path) -> None:
    opts = provider()
    for _ in range(2):
        aws.ec2.Vpc("net", cidr_block="10.0.0.0/16", opts=opts)


def implicit(_: Path) -> None:
    aws.ec2.Vpc("net", cidr_block="10.0.0.0/16")


def strange(_: Path) -> None:
    aws.sns.Topic("news", opts=provider())


def implicit_question(_: Path) -> None:
    aws.ssm.get_parameter_output(name="/a/b/c")


def strange_question(_: Path) -> None:
    opts = provider()
    assert opts.provider is not None
    aws.get_availability_zones_output(opts=pulumi.InvokeOutputOptions(provider=opts.provider))


REFUSALS: dict[str, tuple[Callable[[Path], None], str]] = {
    "one name twice": (twice, "declared twice. Give one of the two another name."),
    "no provider": (implicit, "has no explicit provider. Pass one in its options."),
    "a type nobody described": (strange, "aws:sns/topic:Topic is not a type this project declares"),
    "a question without a provider": (implicit_question, "asked without an explicit provider"),
    "a question nobody described": (strange_question, "not a data source this project asks"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_the_engine_refuses_is_refused(case: str, stacks: Path) -> None:
    program, words = REFUSALS[case]
    assert words in refused(program, stacks)


def test_a_refusal_is_bad_input_whatever_is_built_on_it(stacks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything but bad input ends the console command in a traceback."""
    monkeypatch.delitem(COMPUTED, "aws:eks/cluster:Cluster")  # type: ignore[arg-type]
    failure, _ = failure_of(lambda: evaluate("dev", directory=stacks))
    assert failure is BadInput


def test_an_evaluation_that_failed_leaves_nothing_to_the_next(declared: Declared, stacks: Path) -> None:
    refused(twice, stacks)
    assert evaluate("dev", directory=stacks) == declared("dev")


def test_wrong_settings_are_bad_input(stacks: Path) -> None:
    change(stacks, "dev", {"environment.kubernetes_version": "1.30"})
    with pytest.raises(BadInput, match="out of EKS standard support"):
        evaluate("dev", directory=stacks)


def test_a_wrong_environment_stops_its_models(stacks: Path) -> None:
    change(stacks, "dev", {"environment.region": None})
    with pytest.raises(BadInput, match=r"environment\.region: missing"):
        evaluate(LLAMA, directory=stacks)


# ---- what is recorded -----------------------------------------------------------------------------------------------


def test_the_same_stack_gives_the_same_recording(declared: Declared, stacks: Path) -> None:
    assert evaluate(LLAMA, directory=stacks) == declared(LLAMA)


def test_options_are_recorded_as_they_are_given(stacks: Path) -> None:
    def program(_: Path) -> None:
        opts = provider()
        first = aws.ec2.Vpc("first", cidr_block="10.0.0.0/16", opts=opts)
        second = pulumi.ResourceOptions(
            depends_on=[first],
            deleted_with=first,
            ignore_changes=["tags.owner"],
            protect=True,
            retain_on_delete=True,
            delete_before_replace=True,
            import_="vpc-1",
            custom_timeouts=pulumi.CustomTimeouts(create="5m"),
        )
        aws.ec2.Vpc("second", cidr_block="10.1.0.0/16", opts=pulumi.ResourceOptions.merge(opts, second))

    found = {resource.name: resource for resource in evaluate("dev", directory=stacks, program=program).resources}
    first, second = found["first"], found["second"]
    assert (first.protect, first.retain_on_delete, first.import_id, first.ignore_changes) == (False, False, "", ())
    assert second.depends_on == {first.urn}
    assert second.deleted_with == first.urn
    assert second.ignore_changes == ("tags.owner",)
    assert second.protect
    assert second.retain_on_delete
    assert second.delete_before_replace
    assert second.import_id == "vpc-1"
    assert second.timeouts == {"create": "5m"}
    assert second.provider.startswith(found["p"].urn)


def test_a_secret_is_recorded_as_one(stacks: Path) -> None:
    def program(_: Path) -> None:
        aws.ec2.Vpc("net", cidr_block="10.0.0.0/16", tags={"a": pulumi.Output.secret("quiet")}, opts=provider())

    (net,) = evaluate("dev", directory=stacks, program=program).of_type(":Vpc")
    assert net.secrets == {"tags"}
    assert net.inputs["tags"] == {"a": "quiet"}


def test_preview_knows_no_ids_and_up_does(stacks: Path) -> None:
    def program(_: Path) -> None:
        opts = provider()
        vpc = aws.ec2.Vpc("net", cidr_block="10.0.0.0/16", opts=opts)
        aws.ec2.Subnet("sub", vpc_id=vpc.id, cidr_block="10.0.0.0/24", opts=opts)
        pulumi.export("vpc", vpc.id)

    up = evaluate("dev", directory=stacks, program=program)
    preview = evaluate("dev", directory=stacks, program=program, mode="preview")
    assert up.of_type(":Subnet")[0].inputs["vpcId"] == "net-id"
    assert preview.of_type(":Subnet")[0].inputs["vpcId"] == "unknown"
    assert up.outputs == {"vpc": "net-id"}
    assert preview.outputs.get("vpc") in (None, "unknown")


def test_warnings_of_the_program_are_kept(declared: Declared) -> None:
    assert declared("dev").warnings == ()
    assert [text for text in declared("dev-qwen2-5-0-5b").warnings if "coldstart pin dev-qwen2-5-0-5b" in text]


def test_an_encrypted_value_of_the_stack_file_is_never_read(stacks: Path) -> None:
    path = stacks / f"Pulumi.{LLAMA}.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("config:\n", "config:\n  coldstart:apiKey:\n    secure: v1:abc:def\n", 1), encoding="utf-8"
    )
    change(stacks, LLAMA, {"model.engine.require_api_key": True})
    (secret,) = evaluate(LLAMA, directory=stacks).of_type("core/v1:Secret")
    assert secret.inputs["stringData"] == {"apiKey": "offline-placeholder"}
    assert "stringData" in secret.secrets


def test_urns_are_those_of_the_engine(declared: Declared) -> None:
    """The engine leaves the stack's type out of a URN, and writes every other parent's into it."""
    urns = {resource.urn for resource in declared("dev").resources}
    assert "urn:pulumi:dev::coldstart::pulumi:providers:aws::dev" in urns
    assert (
        "urn:pulumi:dev::coldstart::coldstart:addons:Controllers$coldstart:identity:PodIdentity$aws:iam/role:Role"
        "::dev-autoscaler"
    ) in urns


# ---- nothing is left behind -----------------------------------------------------------------------------------------


def test_the_sdk_forgets_the_stack(stacks: Path) -> None:
    evaluate("dev", directory=stacks)
    assert pulumi.runtime.settings.SETTINGS.monitor is None
    assert pulumi.runtime.settings.get_root_resource() is None
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_a_changed_environment_is_evaluated_anew(stacks: Path) -> None:
    first = evaluate(LLAMA, directory=stacks)
    change(stacks, "dev", {"environment.network.zones": ["a", "b"]})
    second = evaluate(LLAMA, directory=stacks)
    subnets = [found.of_type("eks/nodeGroup:NodeGroup")[0].inputs["subnetIds"] for found in (first, second)]
    assert [len(found) for found in subnets] == [3, 2]


# ---- the cloud's answers --------------------------------------------------------------------------------------------


def test_invented_values_can_be_told_from_real_ones() -> None:
    for token in COMPUTED:
        inputs = {"bucket": "b", "name": "n"}
        text = json.dumps(computed(token, "thing", inputs))
        assert "arn:aws" not in text or ACCOUNT in text or "arn:aws:s3:::b" in text
    assert ACCOUNT == "0" * 12


def test_every_described_type_is_declared_by_some_stack(declared: Declared) -> None:
    """A table with types nobody declares would hide that one of them is declared by mistake."""
    admins = {
        "environment.access.admin_roles": ["arn:aws:iam::111122223333:role/admin"],
        "environment.recorder": {},
    }
    everything = {
        "model.engine.require_api_key": True,
        "model.weights": {
            "fallback": ["node-cache", "shared-fs"],
            "shared_fs": {"driver": "efs.csi.aws.com", "volume_handle": "fs-0123456789abcdef0", "throughput_mb_s": 500},
        },
        "model.scaling.spare_replicas": 1,
        "model.pod_monitor": True,
        "model.cost": {"expires_after": "8h"},
    }
    seen = {resource.type for resource in declared("dev", admins).resources}
    seen |= {resource.type for resource in declared(LLAMA, everything, secret="key").resources}  # noqa: S106 - a test's
    assert COMPUTED.keys() - seen == set()


def test_what_nobody_described_is_refused_with_the_place_to_do_it() -> None:
    with pytest.raises(BadInput, match=r"Describe it in infra/offline_cloud\.py"):
        computed("aws:sns/topic:Topic", "news", {})
    with pytest.raises(BadInput, match=r"Describe it in infra/offline_cloud\.py"):
        answer("aws:index/getCallerIdentity:getCallerIdentity", {}, adopted=False)


def test_a_kept_bucket_answers_by_its_tags() -> None:
    question = {"tagFilters": [{"key": "bucket", "values": ["weights"]}]}
    token = "aws:resourcegroupstaggingapi/getResources:getResources"  # noqa: S105 - a type token
    assert answer(token, question, adopted=False) == {"resourceTagMappingLists": []}
    (mapping,) = answer(token, question, adopted=True)["resourceTagMappingLists"]
    assert mapping["resourceArn"] == "arn:aws:s3:::weights"
