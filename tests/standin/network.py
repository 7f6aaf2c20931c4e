"""EC2's network types: what they need beyond their tables."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import override

from tests.standin.differences import Change
from tests.standin.records import Record
from tests.standin.resources import TAG_PROPERTIES, Resource
from tests.standin.translation import Problem, translate
from tests.standin.wire import UNKNOWN, Properties, is_unknown

RULE_SOURCES = {
    "cidrIpv4": "IpRanges",
    "cidrIpv6": "Ipv6Ranges",
    "prefixListId": "PrefixListIds",
    "referencedSecurityGroupId": "UserIdGroupPairs",
}
ALL_PROTOCOLS = "-1"


class InternetGateway(Resource):
    """Has to leave its VPC before it can go."""

    @override
    def before_delete(self, record: Record) -> None:
        if "vpcId" in record.inputs:
            detach = {"InternetGatewayId": record.id, "VpcId": record.inputs["vpcId"]}
            self.world.cloud.call("ec2.DetachInternetGateway", detach)


class Route(Resource):
    """Lives in the description of its table."""

    @override
    def describe(self, record: Record) -> dict[str, Any] | None:
        table = self.world.cloud.find("ec2.DescribeRouteTables", {"RouteTableIds": [record.inputs["routeTableId"]]})
        routes = table["RouteTables"][0]["Routes"] if table else []
        wanted = record.inputs["destinationCidrBlock"]
        return next((route for route in routes if route.get("DestinationCidrBlock") == wanted), None)

    @override
    def change(self, record: Record, inputs: Properties, top: str) -> bool:
        if top not in ("gatewayId", "natGatewayId"):
            return False
        request = translate(self.kind, inputs).requests[self.kind.create]
        self.world.cloud.call("ec2.ReplaceRoute", request)
        return True


class RouteTableAssociation(Resource):
    """Lives in the description of its table too."""

    @override
    def describe(self, record: Record) -> dict[str, Any] | None:
        table = self.world.cloud.find("ec2.DescribeRouteTables", {"RouteTableIds": [record.inputs["routeTableId"]]})
        associations = table["RouteTables"][0]["Associations"] if table else []
        return next((each for each in associations if each["RouteTableAssociationId"] == record.id), None)


class NatGateway(Resource):
    """A deleted one stays visible for an hour."""

    @override
    def describe(self, record: Record) -> dict[str, Any] | None:
        found = super().describe(record)
        return None if not found or found["State"] == "deleted" else found


class VpcEndpoint(Resource):
    """Its lists change by additions and removals."""

    LISTS: Mapping[str, str] = {
        "routeTableIds": "RouteTableIds",
        "subnetIds": "SubnetIds",
        "securityGroupIds": "SecurityGroupIds",
    }

    @override
    def rules(self, inputs: Properties) -> Iterator[Problem]:
        kind = inputs.get("vpcEndpointType", "Gateway")
        if kind == "Gateway" and {"subnetIds", "securityGroupIds"} & set(inputs):
            yield Problem("vpcEndpointType", "is Gateway, which takes routeTableIds, no subnets and no security groups")
        if kind == "Interface" and "routeTableIds" in inputs:
            yield Problem("vpcEndpointType", "is Interface, which takes subnetIds and no route tables")

    @override
    def describe(self, record: Record) -> dict[str, Any] | None:
        found = super().describe(record)
        if not found or found["State"] == "deleted":
            return None
        return found | {"SecurityGroupIds": [group["GroupId"] for group in found.get("Groups", [])]}

    @override
    def change(self, record: Record, inputs: Properties, top: str) -> bool:
        request: Properties = {"VpcEndpointId": record.id}
        if top == "policy":
            request["PolicyDocument"] = inputs.get("policy", "")
        elif top in self.LISTS:
            old, new = set(record.inputs.get(top, [])), set(inputs.get(top, []))
            member = self.LISTS[top]
            request |= {f"Add{member}": sorted(new - old)} if new - old else {}
            request |= {f"Remove{member}": sorted(old - new)} if old - new else {}
        else:
            return False
        self.world.cloud.call("ec2.ModifyVpcEndpoint", request)
        return True

    @override
    def more_outputs(self, record: Record, description: Mapping[str, Any]) -> Properties:
        dns = [
            {"dnsName": entry.get("DnsName", ""), "hostedZoneId": entry.get("HostedZoneId", "")}
            for entry in description.get("DnsEntries", [])
        ]
        return {"dnsEntries": dns, "requesterManaged": False, "cidrBlocks": []}


class SecurityGroup(Resource):
    """The provider takes away the rule that lets everything out, which EC2 puts into a new group."""

    @override
    def after_create(self, record: Record) -> None:
        found = self.describe(record) or {}
        if found.get("IpPermissionsEgress"):
            revoke = {"GroupId": record.id, "IpPermissions": found["IpPermissionsEgress"]}
            self.world.cloud.call("ec2.RevokeSecurityGroupEgress", revoke)

    @override
    def creation(self, request: Properties, inputs: Properties) -> Properties:
        return {"Description": self.kind.defaults["description"], **request}


class SecurityGroupRule(Resource):
    """One protocol, one range of ports, one source."""

    @override
    def describe(self, record: Record) -> dict[str, Any] | None:
        """Rules have ids of their own; the shape of their description is unlike their request's."""
        wanted = {"Filters": [{"Name": "group-id", "Values": [record.inputs["securityGroupId"]]}]}
        rules = self.world.cloud.call("ec2.DescribeSecurityGroupRules", wanted)["SecurityGroupRules"]
        return next(
            ({"Tags": rule.get("Tags", [])} for rule in rules if rule["SecurityGroupRuleId"] == record.id), None
        )

    @override
    def rules(self, inputs: Properties) -> Iterator[Problem]:
        sources = [name for name in RULE_SOURCES if name in inputs]
        if len(sources) != 1:
            given = ", ".join(sources) or "none"
            yield Problem("cidrIpv4", f"exactly one of {', '.join(RULE_SOURCES)} is expected; given: {given}")
        ports = {"fromPort", "toPort"} & set(inputs)
        if inputs.get("ipProtocol") == ALL_PROTOCOLS and ports:
            yield Problem("ipProtocol", "is -1, all protocols, for which no ports may be given")
        if inputs.get("ipProtocol") in ("tcp", "udp") and len(ports) != 2:
            yield Problem("fromPort", "and toPort are both required for tcp and udp")

    @override
    def creation(self, request: Properties, inputs: Properties) -> Properties:
        if "description" in inputs:
            source = next(name for name in RULE_SOURCES if name in inputs)
            request["IpPermissions"][0][RULE_SOURCES[source]][0]["Description"] = inputs["description"]
        return request


class LaunchTemplate(Resource):
    """Every change is a new version."""

    VERSION_ONLY = ("defaultVersion", "updateDefaultVersion")

    @override
    def rules(self, inputs: Properties) -> Iterator[Problem]:
        data = inputs.get("userData")
        if isinstance(data, str) and not is_unknown(data):
            try:
                base64.b64decode(data, validate=True)
            except binascii.Error:
                yield Problem("userData", "is not base64")

    @override
    def update(self, record: Record, inputs: Properties, changes: Sequence[Change]) -> Record:
        tops = {change.top for change in changes}
        if tops - set(TAG_PROPERTIES) - set(self.VERSION_ONLY):
            request = translate(self.kind, inputs).requests[self.kind.create]
            version = self.world.cloud.call(
                "ec2.CreateLaunchTemplateVersion",
                {"LaunchTemplateId": record.id, "LaunchTemplateData": request.get("LaunchTemplateData", {})}
                | ({"VersionDescription": inputs["description"]} if "description" in inputs else {}),
            )["LaunchTemplateVersion"]["VersionNumber"]
            if inputs.get("updateDefaultVersion"):
                default = {"LaunchTemplateId": record.id, "DefaultVersion": str(version)}
                self.world.cloud.call("ec2.ModifyLaunchTemplate", default)
        return super().update(record, inputs, [change for change in changes if change.top in TAG_PROPERTIES])

    @override
    def more_outputs(self, record: Record, description: Mapping[str, Any]) -> Properties:
        template = self._template(record.id)
        return {
            "latestVersion": template["LatestVersionNumber"],
            "defaultVersion": record.inputs.get("defaultVersion", template["DefaultVersionNumber"]),
        }

    @override
    def describe(self, record: Record) -> dict[str, Any] | None:
        latest = super().describe(record)
        if latest is None:
            return None
        # moto adds the tags of the template itself to those of what it launches.
        data = latest["LaunchTemplateData"]
        if "TagSpecifications" in data:
            launched = [each for each in data["TagSpecifications"] if each["ResourceType"] != self.kind.tag_type]
            latest["LaunchTemplateData"] = data | {"TagSpecifications": launched}
        return latest | {"Tags": self._template(record.id).get("Tags", [])}

    @override
    def outputs_before_change(self, old: Properties, inputs: Properties, changes: Sequence[Change]) -> Properties:
        outputs = super().outputs_before_change(old, inputs, changes)
        if outputs.get("defaultVersion") == UNKNOWN and not inputs.get("updateDefaultVersion"):
            outputs["defaultVersion"] = old.get("defaultVersion", 1)
        return outputs

    def _template(self, template_id: str) -> dict[str, Any]:
        found = self.world.cloud.call("ec2.DescribeLaunchTemplates", {"LaunchTemplateIds": [template_id]})
        return found["LaunchTemplates"][0]
