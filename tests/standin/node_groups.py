"""EKS managed node groups: an Auto Scaling group in moto, whose instances join the control plane as simulated nodes."""

from __future__ import annotations

import base64
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from tests.standin.faults import ServiceError
from tests.standin.kubernetes import CLUSTER, NEWEST_KUBERNETES, OfCluster
from tests.standin.records import Record
from tests.standin.simulated_nodes import GroupOfNodes, sync_nodes
from tests.standin.translation import Problem
from tests.standin.wire import Properties, dig

SIZES = ("minSize", "desiredSize", "maxSize")
AMI = "ami-0123456789abcdef0"
"""EKS puts an image of the group's AMI type into its own copy of the launch template."""
DEFAULT_INSTANCE = "t3.medium"
FAILED = "CREATE_FAILED"


class NodeGroup(OfCluster):
    """A managed node group."""

    @override
    def rules(self, inputs: Properties) -> Iterator[Problem]:
        yield from _size_rules(inputs.get("scalingConfig"))
        if "launchTemplate" in inputs:
            for name in ("diskSize", "remoteAccess"):
                if name in inputs:
                    yield Problem(name, "can't be given beside a launch template")
        update = inputs.get("updateConfig", {})
        if isinstance(update, dict) and {"maxUnavailable", "maxUnavailablePercentage"} <= set(update):
            yield Problem("updateConfig", "takes maxUnavailable or maxUnavailablePercentage, not both")
        if str(inputs.get("amiType", "")).startswith("BOTTLEROCKET"):
            yield from _bottlerocket_rules(inputs.get("warmPoolConfig"))

    @override
    def describe(self, record: Record) -> dict[str, Any] | None:
        """The record knows the tags better: moto can't change those of a node group."""
        found = super().describe(record)
        return found and {name: value for name, value in found.items() if name != "tags"}

    @override
    def collides(self, other: Properties, inputs: Properties) -> bool:
        """Whether the name is taken."""
        return all(other.get(name) == inputs.get(name) for name in ("clusterName", "nodeGroupName"))

    @override
    def before_create(self, inputs: Properties) -> None:
        """What EKS looks at before it accepts the request."""
        super().before_create(inputs)
        template = self._template_data(inputs)
        if inputs.get("instanceTypes") and template.get("InstanceType"):
            raise _invalid("You cannot specify instance types in both the launch template and the API request.")
        if template.get("IamInstanceProfile"):
            raise _invalid("Launch template should not specify an instance profile: the node role is used.")
        if template.get("ImageId") and inputs.get("amiType"):
            raise _invalid("You cannot specify an AMI type when the launch template has an image id.")
        if inputs.get("capacityType") == "CAPACITY_BLOCK" and not template.get("InstanceType"):
            raise _invalid("A capacity block needs the instance type in the launch template.")
        if template.get("UserData") and str(inputs.get("amiType", "")).startswith("BOTTLEROCKET"):
            _check_toml(template["UserData"])
        self._instance(inputs)

    @override
    def after_create(self, record: Record) -> None:
        """EKS makes an Auto Scaling group with a launch template of its own."""
        groups = dig(self.describe(record) or {}, "resources.autoScalingGroups") or []
        name = groups[0]["name"]
        record.facts["autoscalingGroup"] = name
        cluster, cloud = record.inputs["clusterName"], self.world.cloud
        data = self._template_data(record.inputs) | {
            "ImageId": AMI,
            "InstanceType": self._instance(record.inputs)["InstanceType"],
        }
        cloud.call("ec2.CreateLaunchTemplate", {"LaunchTemplateName": name, "LaunchTemplateData": data})
        cloud.call(
            "autoscaling.CreateAutoScalingGroup",
            {
                "AutoScalingGroupName": name,
                "LaunchTemplate": {"LaunchTemplateName": name, "Version": "$Latest"},
                "VPCZoneIdentifier": ",".join(record.inputs["subnetIds"]),
                "Tags": [
                    {"Key": key, "Value": value, "PropagateAtLaunch": True}
                    for key, value in {
                        "eks:cluster-name": cluster,
                        "eks:nodegroup-name": record.inputs["nodeGroupName"],
                        "k8s.io/cluster-autoscaler/enabled": "true",
                        f"k8s.io/cluster-autoscaler/{cluster}": "owned",
                        f"kubernetes.io/cluster/{cluster}": "owned",
                    }.items()
                ],
            }
            | _sizes(record.inputs),
        )
        self._keep_warm_pool(record)
        self.join(record)

    @override
    def change(self, record: Record, inputs: Properties, top: str) -> bool:
        """Labels and taints change by additions and removals."""
        if top == "labels":
            old, new = record.inputs.get(top, {}), inputs.get(top, {})
            delta: Properties = {"addOrUpdateLabels": new, "removeLabels": sorted(set(old) - set(new))}
        elif top == "taints":
            old, new = record.inputs.get(top, []), inputs.get(top, [])
            delta = {"addOrUpdateTaints": new, "removeTaints": [taint for taint in old if taint not in new]}
        else:
            return False
        arguments = self.arguments(self.kind.also["eks.UpdateNodegroupConfig"], record)
        self.world.cloud.call(
            "eks.UpdateNodegroupConfig", arguments | {top: {name: value for name, value in delta.items() if value}}
        )
        return True

    @override
    def after_change(self, record: Record) -> None:
        """The Auto Scaling group follows."""
        if record.facts.get("status") == FAILED:
            return
        group = {"AutoScalingGroupName": record.facts["autoscalingGroup"]}
        self.world.cloud.call("autoscaling.UpdateAutoScalingGroup", group | _sizes(record.inputs))
        self._keep_warm_pool(record)
        self.join(record)

    @override
    def after_delete(self, record: Record) -> None:
        """The Auto Scaling group goes with its instances, the nodes go with them."""
        name, cloud = record.facts.get("autoscalingGroup"), self.world.cloud
        if name is None:  # nothing remembers it: it was deleted before, and whoever asked was killed meanwhile
            return
        cloud.find("autoscaling.DeleteAutoScalingGroup", {"AutoScalingGroupName": name, "ForceDelete": True})
        cloud.find("ec2.DeleteLaunchTemplate", {"LaunchTemplateName": name})
        self.join(record)

    @override
    def more_outputs(self, record: Record, description: Mapping[str, Any]) -> Properties:
        """What EKS chose where nothing was asked for."""
        given = record.inputs
        cluster = self.world.records.get(CLUSTER, given["clusterName"])
        outputs: Properties = {
            "resources": [
                {
                    "autoscalingGroups": [{"name": record.facts.get("autoscalingGroup", "")}],
                    "remoteAccessSecurityGroupId": "",
                }
            ],
            "status": record.facts.get("status", "ACTIVE"),
            "version": given.get("version", (cluster.inputs if cluster else {}).get("version", NEWEST_KUBERNETES)),
            "amiType": given.get("amiType", "AL2023_x86_64_STANDARD"),
            "capacityType": given.get("capacityType", "ON_DEMAND"),
            "updateConfig": given.get("updateConfig", {"maxUnavailable": 1}),
        }
        if "launchTemplate" in given:
            template = self._template(given)
            outputs["launchTemplate.id"] = template["LaunchTemplateId"]
            outputs["launchTemplate.name"] = template["LaunchTemplateName"]
        if "releaseVersion" not in given:
            outputs["releaseVersion"] = ""
        if "launchTemplate" not in given and "instanceTypes" not in given:
            outputs["instanceTypes"] = [DEFAULT_INSTANCE]
        return outputs

    def join(self, record: Record) -> None:
        """Makes the control plane's nodes match the instances that the Auto Scaling group has now."""
        if self.world.kube is None:
            return
        asked = {"AutoScalingGroupNames": [record.facts["autoscalingGroup"]]}
        groups = self.world.cloud.call("autoscaling.DescribeAutoScalingGroups", asked)["AutoScalingGroups"]
        instances = groups[0]["Instances"] if groups else []
        nodes = GroupOfNodes(
            name=record.inputs["nodeGroupName"],
            capacity_type=record.inputs.get("capacityType", "ON_DEMAND"),
            labels=record.inputs.get("labels", {}),
            taints=record.inputs.get("taints", []),
            instances={instance["InstanceId"]: instance["AvailabilityZone"] for instance in instances},
            region=self.world.cloud.region,
        )
        sync_nodes(self.world.kube, nodes, self._instance(record.inputs) if instances else {})

    def _keep_warm_pool(self, record: Record) -> None:
        pool, group = record.inputs.get("warmPoolConfig"), record.facts["autoscalingGroup"]
        if pool is None:
            if record.facts.pop("warmPool", None):
                arguments = {"AutoScalingGroupName": group, "ForceDelete": True}
                self.world.cloud.call("autoscaling.DeleteWarmPool", arguments)
            return
        request = {
            "AutoScalingGroupName": group,
            "MinSize": pool.get("minSize", 0),
            "PoolState": pool.get("poolState", "STOPPED").capitalize(),
        }
        if pool.get("maxGroupPreparedCapacity", -1) >= 0:
            request["MaxGroupPreparedCapacity"] = pool["maxGroupPreparedCapacity"]
        self.world.cloud.call("autoscaling.PutWarmPool", request)
        record.facts["warmPool"] = True

    def _instance(self, inputs: Properties) -> dict[str, Any]:
        name = self._template_data(inputs).get("InstanceType") or inputs.get("instanceTypes", [DEFAULT_INSTANCE])[0]
        found = self.world.cloud.find("ec2.DescribeInstanceTypes", {"InstanceTypes": [name]})
        if not found or not found["InstanceTypes"]:
            raise _invalid(f"The following supplied instance types do not exist: [{name}]")
        return found["InstanceTypes"][0]

    def _template(self, inputs: Properties) -> dict[str, Any]:
        chosen = inputs["launchTemplate"]
        key = {"LaunchTemplateIds": [chosen["id"]]} if "id" in chosen else {"LaunchTemplateNames": [chosen["name"]]}
        found = self.world.cloud.find("ec2.DescribeLaunchTemplates", key)
        if not found or not found["LaunchTemplates"]:
            raise _invalid(f"Launch template {chosen} not found.")
        return found["LaunchTemplates"][0]

    def _template_data(self, inputs: Properties) -> dict[str, Any]:
        if "launchTemplate" not in inputs:
            return {}
        version = str(inputs["launchTemplate"]["version"])
        arguments = {"LaunchTemplateId": self._template(inputs)["LaunchTemplateId"], "Versions": [version]}
        found = self.world.cloud.find("ec2.DescribeLaunchTemplateVersions", arguments)
        if not found or not found["LaunchTemplateVersions"]:
            raise _invalid(f"Launch template version {version} not found.")
        return found["LaunchTemplateVersions"][0]["LaunchTemplateData"]


def _size_rules(size: Any) -> Iterator[Problem]:
    if not isinstance(size, dict):
        return
    missing = [name for name in SIZES if name not in size]
    for name in missing:
        yield Problem(f"scalingConfig.{name}", "is missing, and required")
    if not missing and all(isinstance(size[name], int) for name in SIZES):
        least, desired, most = (size[name] for name in SIZES)
        if not least <= desired <= most:
            yield Problem("scalingConfig.desiredSize", f"is {desired}, which is not between {least} and {most}")


def _bottlerocket_rules(pool: Any) -> Iterator[Problem]:
    if isinstance(pool, dict) and pool.get("poolState") == "HIBERNATED":
        yield Problem("warmPoolConfig.poolState", "is HIBERNATED, which Bottlerocket does not support")
    if isinstance(pool, dict) and pool.get("reuseOnScaleIn") is True:
        yield Problem("warmPoolConfig.reuseOnScaleIn", "is true, which Bottlerocket does not support")


def _sizes(inputs: Properties) -> Properties:
    size = inputs["scalingConfig"]
    return {"MinSize": size["minSize"], "MaxSize": size["maxSize"], "DesiredCapacity": size["desiredSize"]}


def _check_toml(user_data: str) -> None:
    try:
        tomllib.loads(base64.b64decode(user_data).decode())
    except ValueError as error:
        raise _invalid(f"User data was not in the TOML format for Bottlerocket: {error}") from error


def _invalid(text: str) -> ServiceError:
    return ServiceError(f"CreateNodegroup: InvalidParameterException: {text}")
