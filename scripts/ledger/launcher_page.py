"""The launcher's ledger, asked of the pod itself."""

from __future__ import annotations

import http.client

from scripts.ledger.facts import Absence
from scripts.ledger.pod_facts import engine_container
from scripts.ledger.raw import NOTHING, Object, object_of, objects, parsed, text, whole

LAUNCHER_TIMEOUT_S = 3.0


def fetch_launcher(pod: Object, absences: list[Absence]) -> Object:
    """The launcher's ledger, from the pod itself; empty when it has no launcher or does not answer."""
    name = engine_container(pod)
    container = next((entry for entry in objects(pod, "spec.containers") if text(entry, "name") == name), NOTHING)
    port = next(
        (whole(entry, "containerPort") for entry in objects(container, "ports") if text(entry, "name") == "launcher"),
        None,
    )
    address = text(pod, "status.podIP")
    if port is None or not address:
        absences.append(
            Absence(
                what="launcher",
                why="the pod offers no port named launcher" if port is None else "the pod has no address",
            )
        )
        return {}
    connection = http.client.HTTPConnection(address, port, timeout=LAUNCHER_TIMEOUT_S)
    try:
        connection.request("GET", "/ledger")
        answer = connection.getresponse()
        found = parsed(answer.read().decode("utf-8", "replace"))
    except (OSError, http.client.HTTPException, ValueError) as error:
        absences.append(
            Absence(what="launcher", why=f"http://{address}:{port}/ledger: {error or type(error).__name__}")
        )
        return {}
    finally:
        connection.close()
    return object_of(found)
