"""What running nodes cost: the instances and the volumes that hang on them."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.account.bill import Bill
from scripts.account.found import Price
from scripts.account.kinds import instances, volumes
from scripts.account.refusals import told
from scripts.account.session import Clients


def bill_of(clients: Clients, ids: Sequence[str]) -> Bill:
    """The hourly bill of instances, by id; those that are gone cost nothing."""
    prices: list[Price] = []
    disks: list[str] = []
    with told("pricing nodes"):
        for instance in alive(clients, ids):
            prices.append(instances.KIND.facts(instance, clients).price)
            mappings = instance.get("BlockDeviceMappings", [])
            disks += [volume for each in mappings if (volume := each.get("Ebs", {}).get("VolumeId"))]
        if disks:
            for page in clients.ec2.get_paginator("describe_volumes").paginate(
                Filters=[{"Name": "volume-id", "Values": disks}]
            ):
                prices += [volumes.KIND.facts(volume, clients).price for volume in page["Volumes"]]
    known = [price.usd_per_hour for price in prices if price.usd_per_hour is not None]
    return Bill(usd_per_hour=sum(known), unpriced=len(prices) - len(known))


def alive(clients: Clients, ids: Sequence[str]) -> list[instances.InstanceTypeDef]:
    """Instances that EC2 has not terminated yet."""
    if not ids:
        return []
    pages = clients.ec2.get_paginator("describe_instances").paginate(
        Filters=[
            {"Name": "instance-id", "Values": list(ids)},
            {"Name": "instance-state-name", "Values": list(instances.ALIVE)},
        ]
    )
    return [each for page in pages for found in page["Reservations"] for each in found.get("Instances", [])]
