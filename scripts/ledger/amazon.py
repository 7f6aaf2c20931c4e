"""What only AWS can tell of a start: when the instance was launched, and what the NAT gateways carried meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from scripts.ledger.bundle import Bundle
from scripts.ledger.facts import Absence
from scripts.ledger.node_facts import instance_id
from scripts.ledger.raw import text
from scripts.ledger.times import stamp

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_ec2 import EC2Client

MINUTE_S = 60
BYTES_FROM_INTERNET = "BytesInFromDestination"
"""What a NAT gateway took in from the internet side: the way of bytes that a pod downloads (VPC user guide)."""


class Amazon:
    """EC2 and CloudWatch for one environment.

    Attributes:
        environment: name of the environment stack, whose tag the NAT gateways bear.
    """

    def __init__(self, ec2: EC2Client, cloudwatch: CloudWatchClient, environment: str) -> None:
        self._ec2, self._cloudwatch, self._environment = ec2, cloudwatch, environment

    def launched(self, bundle: Bundle) -> Bundle:
        """The EC2 instance of the pod's node."""
        identity = instance_id(bundle.node)
        if not identity:
            return bundle
        try:
            answer = self._ec2.describe_instances(InstanceIds=[identity])
        except (BotoCoreError, ClientError) as error:
            return _absent(bundle, "instance", f"EC2: {error}")
        found = [instance for group in answer.get("Reservations", []) for instance in group.get("Instances", [])]
        if not found:
            return _absent(bundle, "instance", f"EC2 knows no instance {identity}")
        launch = found[0].get("LaunchTime")
        kept: dict[str, Any] = {"InstanceId": identity, "InstanceType": found[0].get("InstanceType")}
        if launch is not None:
            kept["LaunchTime"] = launch.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return replace(bundle, instance=kept)

    def traffic(self, bundle: Bundle) -> Bundle:
        """Bytes that the NAT gateways brought in between the pod's creation and its Ready, whole minutes around it."""
        try:
            begin_s, _ = stamp(text(bundle.pod, "metadata.creationTimestamp"))
        except ValueError:
            return bundle
        end_s = bundle.collected_s or begin_s
        for condition in bundle.pod.get("status", {}).get("conditions", []):
            if condition.get("type") == "Ready" and condition.get("status") == "True":
                end_s = stamp(condition["lastTransitionTime"])[0]
        try:
            gateways = self._gateways()
            carried = sum(self._carried(gateway, begin_s, end_s) for gateway in gateways)
        except (BotoCoreError, ClientError) as error:
            return _absent(bundle, "traffic", f"CloudWatch: {error}")
        return replace(bundle, traffic={"nat_bytes": carried, "nat_gateways": len(gateways), "source": "cloudwatch"})

    def _gateways(self) -> Sequence[str]:
        answer = self._ec2.describe_nat_gateways(
            Filters=[
                {"Name": "tag:application", "Values": ["coldstart"]},
                {"Name": "tag:environment", "Values": [self._environment]},
                {"Name": "state", "Values": ["available"]},
            ]
        )
        return [gateway["NatGatewayId"] for gateway in answer.get("NatGateways", []) if "NatGatewayId" in gateway]

    def _carried(self, gateway: str, begin_s: float, end_s: float) -> int:
        begin = datetime.fromtimestamp(begin_s - begin_s % MINUTE_S, UTC)
        end = datetime.fromtimestamp(end_s - end_s % MINUTE_S, UTC) + timedelta(minutes=1)
        answer = self._cloudwatch.get_metric_statistics(
            Namespace="AWS/NATGateway",
            MetricName=BYTES_FROM_INTERNET,
            Dimensions=[{"Name": "NatGatewayId", "Value": gateway}],
            StartTime=begin,
            EndTime=end,
            Period=MINUTE_S,
            Statistics=["Sum"],
        )
        return int(sum(point.get("Sum", 0.0) for point in answer.get("Datapoints", [])))


def _absent(bundle: Bundle, what: str, why: str) -> Bundle:
    return replace(bundle, absences=(*bundle.absences, Absence(what=what, why=why)))
