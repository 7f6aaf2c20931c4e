"""What moto does not implement, and a test may need: quiet answers, which a test replaces by what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tests.aws.account.front import Front

Request = Mapping[str, Any]


def answer_for_moto(front: Front) -> None:
    """An account without reservations, fast restores or quotas of its own."""
    front.answers |= {
        "ec2.DescribeCapacityReservations": lambda _: {"CapacityReservations": []},
        "ec2.DescribeFastSnapshotRestores": lambda _: {"FastSnapshotRestores": []},
    }


def reservation(name: str, *, idle: int = 1, total: int = 2, tags: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A capacity reservation as EC2 describes it."""
    return {
        "CapacityReservationId": name,
        "OwnerId": "111122223333",
        "InstanceType": "g6e.2xlarge",
        "AvailabilityZone": "us-west-2a",
        "TotalInstanceCount": total,
        "AvailableInstanceCount": idle,
        "State": "active",
        "CreateDate": datetime(2026, 11, 1, tzinfo=UTC),
        "Tags": [{"Key": key, "Value": value} for key, value in (tags or {}).items()],
    }
