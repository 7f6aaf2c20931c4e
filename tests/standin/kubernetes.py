"""EKS: clusters that are a control plane on loopback, and what belongs to them (node groups: node_groups.py)."""

from __future__ import annotations

import base64
import secrets
import uuid
from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from tests.standin.faults import ServiceError
from tests.standin.records import Record
from tests.standin.resources import Resource
from tests.standin.simulated_nodes import wipe
from tests.standin.wire import Properties, dig

CLUSTER = "aws:eks/cluster:Cluster"
ZONES_OF_A_CLUSTER = 2
NEWEST_KUBERNETES = "1.36"
SERVICE_RANGE = "172.20.0.0/16"  # what EKS takes unless the VPC itself lies in 172.16.0.0/12
WITH_CLUSTER = (
    "aws:eks/addon:Addon",
    "aws:eks/accessEntry:AccessEntry",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation",
)
"""What goes with its cluster, without being deleted by itself."""


class Cluster(Resource):
    """An EKS cluster. Its endpoint and its certificate authority are those of the control plane on loopback."""

    @override
    def before_create(self, inputs: Properties) -> None:
        zones = {subnet["AvailabilityZone"] for subnet in self._subnets(inputs)}
        if len(zones) < ZONES_OF_A_CLUSTER:
            raise ServiceError(
                "CreateCluster: InvalidParameterException: Subnets specified must be in at least two different AZs"
            )

    @override
    def creation(self, request: Properties, inputs: Properties) -> Properties:
        for entry in request.get("logging", {}).get("clusterLogging", []):
            entry["enabled"] = True
        return request

    @override
    def after_create(self, record: Record) -> None:
        cloud = self.world.cloud
        record.facts["vpc"] = self._subnets(record.inputs)[0]["VpcId"]
        name = f"eks-cluster-sg-{record.id}-{secrets.randbelow(10**9)}"
        group = {"GroupName": name, "Description": "EKS created security group", "VpcId": record.facts["vpc"]}
        record.facts["securityGroup"] = cloud.call("ec2.CreateSecurityGroup", group)["GroupId"]
        log_group = f"/aws/eks/{record.id}/cluster"
        found = cloud.call("logs.DescribeLogGroups", {"logGroupNamePrefix": log_group})["logGroups"]
        if record.inputs.get("enabledClusterLogTypes") and not found:
            cloud.call("logs.CreateLogGroup", {"logGroupName": log_group})

    @override
    def more_outputs(self, record: Record, description: Mapping[str, Any]) -> Properties:
        kube, given = self.world.kube, record.inputs
        endpoint = kube.endpoint if kube else description.get("endpoint", "")
        authority = kube.certificate_authority_data if kube else base64.b64encode(b"no control plane").decode()
        issuer = uuid.uuid5(uuid.NAMESPACE_DNS, record.id).hex.upper()
        outputs: Properties = {
            "endpoint": endpoint,
            "certificateAuthority": {"data": authority},
            "identities": [
                {"oidcs": [{"issuer": f"https://oidc.eks.{self.world.cloud.region}.amazonaws.com/id/{issuer}"}]}
            ],
            "version": given.get("version", NEWEST_KUBERNETES),
            "vpcConfig.vpcId": record.facts.get("vpc"),
            "vpcConfig.clusterSecurityGroupId": record.facts.get("securityGroup"),
            "createdAt": str(description.get("createdAt", "")),
            "status": "ACTIVE",
        }
        if dig(given, "vpcConfig.publicAccessCidrs") is None:
            public = dig(given, "vpcConfig.endpointPublicAccess") is not False
            outputs["vpcConfig.publicAccessCidrs"] = ["0.0.0.0/0"] if public else []
        if "kubernetesNetworkConfig" not in given:
            outputs["kubernetesNetworkConfig"] = {"serviceIpv4Cidr": SERVICE_RANGE, "ipFamily": "ipv4"}
        if "accessConfig" not in given:
            outputs["accessConfig"] = {"authenticationMode": "API_AND_CONFIG_MAP"}
        if "upgradePolicy" not in given:
            outputs["upgradePolicy"] = {"supportType": "EXTENDED"}
        return outputs

    @override
    def before_delete(self, record: Record) -> None:
        if record.inputs.get("deletionProtection"):
            raise ServiceError("DeleteCluster: InvalidRequestException: Cluster has deletion protection enabled")

    @override
    def after_delete(self, record: Record) -> None:
        if "securityGroup" in record.facts:
            self.world.cloud.find("ec2.DeleteSecurityGroup", {"GroupId": record.facts["securityGroup"]})
        for token in WITH_CLUSTER:
            for child in self.world.records.all(token):
                if child.inputs.get("clusterName") == record.id:
                    self.world.records.remove(token, child.id)
        if self.world.kube:
            wipe(self.world.kube)

    def _subnets(self, inputs: Properties) -> list[dict[str, Any]]:
        ids = inputs["vpcConfig"]["subnetIds"]
        return self.world.cloud.call("ec2.DescribeSubnets", {"SubnetIds": ids})["Subnets"]


class OfCluster(Resource):
    """Anything that belongs to a cluster, which has to exist."""

    @override
    def before_create(self, inputs: Properties) -> None:
        name = inputs["clusterName"]
        if self.world.records.get(CLUSTER, name) is None:
            operation = self.kind.create.partition(".")[2]
            raise ServiceError(f"{operation}: ResourceNotFoundException: No cluster found for name: {name}.")
        for record in self.world.records.all(self.kind.token):
            if self.collides(record.inputs, inputs):
                raise ServiceError(f"{self.kind.create}: ResourceInUseException: already exists: {record.id}")

    def collides(self, other: Properties, inputs: Properties) -> bool:
        """Whether another resource of the type takes the place of this one."""
        return all(other.get(name) == inputs.get(name) for name in self.kind.replace)


class PodIdentityAssociation(OfCluster):
    """One for a service account."""

    @override
    def invented_id(self) -> str:
        return f"a-{secrets.token_hex(8)}"

    @override
    def more_outputs(self, record: Record, description: Mapping[str, Any]) -> Properties:
        return {"disableSessionTags": record.inputs.get("disableSessionTags", False)}


class AccessEntry(OfCluster):
    """Names itself after its principal."""

    @override
    def more_outputs(self, record: Record, description: Mapping[str, Any]) -> Properties:
        given = record.inputs
        return {
            "kubernetesGroups": given.get("kubernetesGroups", []),
            "userName": given.get("userName", given["principalArn"]),
        }


class AccessPolicyAssociation(OfCluster):
    """Needs the access entry of its principal."""

    @override
    def before_create(self, inputs: Properties) -> None:
        super().before_create(inputs)
        entry = f"{inputs['clusterName']}:{inputs['principalArn']}"
        if self.world.records.get("aws:eks/accessEntry:AccessEntry", entry) is None:
            raise ServiceError(
                "AssociateAccessPolicy: ResourceNotFoundException: "
                f"The specified principalArn could not be found: {inputs['principalArn']}"
            )


class Addon(OfCluster):
    """At the version that EKS recommends, unless one is asked for."""

    @override
    def more_outputs(self, record: Record, description: Mapping[str, Any]) -> Properties:
        return {
            "addonVersion": record.inputs.get("addonVersion", "v1.0.0-eksbuild.1"),
            "configurationValues": record.inputs.get("configurationValues", ""),
        }
