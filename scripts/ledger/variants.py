"""A model's deployment with one lever off: the objects of a side of an A/B, made from those that run."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from budget.problems import bad_input, did_you_mean
from scripts.ledger.comparison import Side
from scripts.ledger.raw import Object, mapping, objects, text
from serving.placement import MODEL_LABEL

LAUNCHER_CONFIG = "launcher.json"
SIDE_LABEL = "coldstart/ab"

Config = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Pod:
    """What a lever may change: the launcher's configuration, the engine's command, its environment."""

    config: Config
    command: list[str]
    environment: dict[str, str]


def _compile_cache(pod: Pod) -> None:
    if pod.config.get("compile_cache") is None:
        raise bad_input(
            "compile-cache", "the model has no compile cache", "Nothing can be compared: configure one first."
        )
    pod.config["compile_cache"] = None


def _graphs(pod: Pod) -> None:
    if "--enforce-eager" in pod.command:
        raise bad_input("cuda-graphs", "the model runs eagerly already", "Use a production profile.")
    kept = [word for word in pod.command if word != "--enforce-eager"]
    if "--cudagraph-capture-sizes" in kept:
        index = kept.index("--cudagraph-capture-sizes")
        end = index + 1
        while end < len(kept) and kept[end].isdigit():
            end += 1
        del kept[index:end]
    pod.command[:] = [*kept, "--enforce-eager"]


def _distributed(pod: Pod) -> None:
    changed = False
    for path in pod.config.get("weights", {}).get("paths", []):
        arguments = path.get("engine_args", [])
        if "--model-loader-extra-config" in arguments:
            index = arguments.index("--model-loader-extra-config")
            extra = json.loads(arguments[index + 1])
            changed = changed or bool(extra.pop("distributed", False))
            arguments[index + 1] = json.dumps(extra)
    if not changed:
        raise bad_input(
            "distributed-streaming", "the ranks of this model share no read", "It needs tensor parallelism."
        )


def _startup_plan(pod: Pod) -> None:
    if pod.environment.get("VLLM_ENABLE_STARTUP_PLAN") != "1":
        raise bad_input("startup-plan", "the model has no start-up plan", "It needs vLLM 0.27.1 or newer.")
    pod.environment["VLLM_ENABLE_STARTUP_PLAN"] = "0"


def _warmup(pod: Pod) -> None:
    pod.config["warmup"] = pod.config["warmup"] | {"prompt_tokens": [16], "batch_sizes": [1], "window": 1, "cap_s": 1}


LEVERS: Mapping[str, Callable[[Pod], None]] = {
    "compile-cache": _compile_cache,
    "cuda-graphs": _graphs,
    "distributed-streaming": _distributed,
    "startup-plan": _startup_plan,
    "warm-up": _warmup,
}
"""Lever that a pod carries by itself → how it is turned off. Levers of the node need another node group."""


def known_lever(lever: str) -> str:
    """The lever.

    Raises:
        BadInput: there is none of that name.
    """
    if lever not in LEVERS:
        raise bad_input("--ab", f"there is no lever {lever!r}", did_you_mean(lever, LEVERS))
    return lever


def variant(deployment: Object, config_map: Object, lever: str, side: Side) -> list[Mapping[str, Any]]:
    """ConfigMap and Deployment of one side, beside those of the model and with none of its traffic.

    Args:
        deployment: of the model, as it runs.
        config_map: the launcher's, which the deployment mounts.
        lever: what is compared.
        side: `on` is the model as it runs, `off` without the lever.

    Raises:
        BadInput: the model does not have the lever to begin with.
    """
    made = copy.deepcopy(json.loads(json.dumps(deployment, default=dict)))
    data = dict(mapping(config_map, "data"))
    container = made["spec"]["template"]["spec"]["containers"][0]
    pod = Pod(
        config=json.loads(str(data[LAUNCHER_CONFIG])),
        command=list(container.get("command", [])),
        environment={
            text(entry, "name"): text(entry, "value") for entry in objects(container, "env") if "value" in entry
        },
    )
    known_lever(lever)
    LEVERS[lever](_copied(pod))  # refuses a model without the lever, whichever side is made
    if side == "off":
        LEVERS[lever](pod)
    name = f"{text(deployment, 'metadata.name')}-ab-{side}"[:63]
    labels = {SIDE_LABEL: side, "app.kubernetes.io/managed-by": "coldstart", MODEL_LABEL: name}
    data[LAUNCHER_CONFIG] = json.dumps(pod.config, indent=2)
    container["command"] = pod.command
    container["env"] = [
        {**entry, "value": pod.environment[entry["name"]]} if entry.get("name") in pod.environment else entry
        for entry in container.get("env", [])
    ]
    old = text(config_map, "metadata.name")
    for volume in made["spec"]["template"]["spec"].get("volumes", []):
        if volume.get("configMap", {}).get("name") == old:
            volume["configMap"]["name"] = name
    namespace = text(deployment, "metadata.namespace")
    template = made["spec"]["template"]
    template["metadata"] = {"labels": labels}
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "data": data,
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {
                "replicas": 1,
                "progressDeadlineSeconds": made["spec"].get("progressDeadlineSeconds", 600),
                "selector": {"matchLabels": {MODEL_LABEL: name}},
                "template": template,
            },
        },
    ]


def _copied(pod: Pod) -> Pod:
    return Pod(config=copy.deepcopy(pod.config), command=list(pod.command), environment=dict(pod.environment))
