"""What the recorder keeps of an object: what the readers look at, so that 500 starts fit in little memory."""

from __future__ import annotations

from typing import Any

from scripts.ledger.bundle import GPU_RESOURCES
from scripts.ledger.raw import Object, label, mapping, objects, text
from serving.placement import MODEL_LABEL

_POD_LABELS = (MODEL_LABEL, "app.kubernetes.io/name", "app")
_NODE_LABELS = (MODEL_LABEL, "node.kubernetes.io/instance-type", "karpenter.sh/nodepool")
_IDENTITY = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_ROLE_ARN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def pod(found: Object) -> Object:
    """A pod without its volumes, its annotations and the values of its environment."""
    return {
        "metadata": {
            **_metadata(found, _POD_LABELS),
            **_some(mapping(found, "metadata"), ("deletionTimestamp", "deletionGracePeriodSeconds")),
            "managedFields": _managed(found),
        },
        "spec": {
            **_some(mapping(found, "spec"), ("nodeName", "serviceAccountName")),
            "containers": [_container(container) for container in objects(found, "spec.containers")],
        },
        "status": _some(mapping(found, "status"), ("phase", "podIP", "message", "conditions", "containerStatuses")),
    }


def event(found: Object) -> Object:
    """An event without what names it."""
    keep = ("reason", "message", "firstTimestamp", "lastTimestamp", "eventTime", "series", "count", "source")
    involved = mapping(found, "involvedObject")
    return {
        "metadata": _some(mapping(found, "metadata"), ("uid", "creationTimestamp", "resourceVersion")),
        **_some(found, (*keep, "reportingComponent")),
        "involvedObject": _some(involved, ("uid", "fieldPath", "name", "namespace")),
    }


def node(found: Object) -> Object:
    """A node without its images and addresses."""
    return {
        "metadata": _metadata(found, _NODE_LABELS),
        "spec": _some(mapping(found, "spec"), ("providerID",)),
        "status": {
            "conditions": [
                _some(entry, ("type", "status", "lastTransitionTime"))
                for entry in objects(found, "status.conditions")
                if text(entry, "type") == "Ready"
            ],
            "allocatable": _some(mapping(found, "status.allocatable"), GPU_RESOURCES),
        },
    }


def _metadata(found: Object, labels: tuple[str, ...]) -> dict[str, Any]:
    kept = _some(mapping(found, "metadata"), ("name", "namespace", "uid", "creationTimestamp", "resourceVersion"))
    return kept | {"labels": {key: label(found, key) for key in labels if label(found, key)}}


def _container(found: Object) -> dict[str, Any]:
    identity = [
        {"name": text(entry, "name"), "value": text(entry, "value") if text(entry, "name") in _IDENTITY[:2] else ""}
        for entry in objects(found, "env")
        if text(entry, "name") in _IDENTITY
    ]
    return {
        **_some(found, ("name", "image", "ports")),
        "env": identity,
        "resources": {"limits": mapping(found, "resources.limits")},
    }


def _managed(found: Object) -> list[dict[str, Any]]:
    return [
        _some(entry, ("manager", "subresource", "time"))
        for entry in objects(found, "metadata.managedFields")
        if text(entry, "subresource") == "status"
    ]


def _some(found: Object, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: found[key] for key in keys if key in found}
