"""What a baking node boots with: user data that makes its kubelet pull one image, the way every node pulls."""

from __future__ import annotations

import base64
import json
import tomllib
from pathlib import Path

import jinja2

from nodeconfig.soci import Tuning

TEMPLATES = Path(__file__).parent / "templates"
POD = "coldstart-bake"


def bake_user_data(image: str, tuning: Tuning) -> str:
    """Plain TOML, parsed back before it is returned.

    Args:
        image: by digest, in a registry that the node's role may read.
        tuning: of the node's parallel pull.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 - TOML from validated values
        keep_trailing_newline=True,
    )
    manifest = base64.b64encode(json.dumps(static_pod(image)).encode()).decode()
    text = environment.get_template("bake-user-data.toml.j2").render(soci=tuning, manifest=manifest)
    tomllib.loads(text)
    return text


def static_pod(image: str) -> dict[str, object]:
    """A pod that does nothing: what counts is that its image is pulled."""
    container = {
        "name": "image",
        "image": image,
        "command": ["/bin/sh", "-c", "exit 0"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD, "namespace": "kube-system"},
        "spec": {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]},
    }
