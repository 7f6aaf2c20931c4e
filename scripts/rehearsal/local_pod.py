"""A rendered pod, made to run on this machine: the same command, configuration and environment, less the GPU."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from scripts.failure import Failure

LONGEST_TOKENS = 512
"""Context of the tiny model in a rehearsal: its own 2048 would only make the CPU's warm-up longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One thing in which a rehearsed pod differs from the rendered one."""

    what: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalPod:
    """A pod that can be started as a process.

    Attributes:
        argv: the container's command.
        environment: all of it; nothing is inherited.
        config: `launcher.json`.
        launcher: `launch.py`.
        mounts: mount path of the pod → directory here.
        changes: every difference from the rendered pod.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    config: Mapping[str, Any]
    launcher: str
    mounts: Mapping[str, Path]
    changes: Sequence[Change]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """What the machine offers in the place of a cluster.

    Attributes:
        python: stands for the image's `python3`.
        folder: stands for the pod's writable file systems.
        ports: the launcher's and the engine's.
        store_environment: what points clients at the S3 server.
        model_uri, manifest_uri: of the staged tiny model.
    """

    python: Path
    folder: Path
    ports: tuple[int, int]
    store_environment: Mapping[str, str]
    model_uri: str
    manifest_uri: str


GPU_ONLY: Mapping[str, str] = {
    "--gpu-memory-utilization": "there is no GPU memory",
    "--cudagraph-capture-sizes": "there are no CUDA graphs",
    "--tensor-parallel-size": "there are no GPUs to split the model over",
}
"""Engine options that a CPU can't follow → why. Everything else is passed as it was rendered."""

CPU_ENVIRONMENT: Mapping[str, tuple[str, str]] = {
    "VLLM_CPU_KVCACHE_SPACE": ("1", "KV cache in host memory, GiB"),
    "VLLM_USE_AOT_COMPILE": ("0", "the CPU build of 0.32 writes its ahead-of-time artefact but can't load it back"),
    "TORCH_LOGS": (
        "torch._inductor.codecache,torch._functorch._aot_autograd.autograd_cache",
        "without ahead-of-time artefacts PyTorch's own lines prove a cache hit",
    ),
}
"""What the CPU build needs beside → value and why."""


def workload(objects: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The engine's container and the ConfigMap of the launcher, out of a model's objects.

    Raises:
        Failure: they are not what a model's objects are.
    """
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for document in objects:
        by_kind.setdefault(str(document["kind"]), []).append(document)
    configs = [found for found in by_kind.get("ConfigMap", []) if "launcher.json" in found.get("data", {})]
    engines = [
        container
        for deployment in by_kind.get("Deployment", [])
        for container in deployment["spec"]["template"]["spec"]["containers"]
        if "{weights}" in container.get("command", [])
    ]
    if len(configs) != 1 or len(engines) != 1:
        raise Failure(
            f"the stack renders {len(engines)} engines and {len(configs)} launcher configurations, not one each"
        )
    return engines[0], configs[0]


def buckets(config: Mapping[str, Any]) -> set[str]:
    """Every bucket a launcher configuration names."""
    uris = [path["source"] for path in config["weights"]["paths"]]
    uris += [config["compile_cache"]["uri"]] if config["compile_cache"] else []
    return {uri.removeprefix("s3://").partition("/")[0] for uri in uris if uri.startswith("s3://")}


def local_pod(objects: Iterable[Mapping[str, Any]], stage: Stage) -> LocalPod:
    """The pod of a model's rendered objects as a process of this machine.

    Raises:
        Failure: the objects hold no pod that can be rehearsed.
    """
    container, config_map = workload(objects)
    rendered = json.loads(config_map["data"]["launcher.json"])
    mounts = {mount["mountPath"]: _directory(stage.folder, mount["mountPath"]) for mount in container["volumeMounts"]}
    uris = _uris(rendered, stage)
    moved = {path: str(directory) for path, directory in mounts.items()} | uris
    changes = [Change(what="python3", why=f"the engine environment's: {stage.python}")]
    changes += [Change(what=", ".join(mounts), why=f"directories of this machine, below {stage.folder}")]
    changes += [Change(what=old, why=f"here: {new}") for old, new in uris.items()]
    config = _config(_moved(rendered, moved), stage, changes)
    argv = [_moved(argument, moved) for argument in container["command"]]
    argv = _without_gpu(argv, changes)
    return LocalPod(
        argv=[str(stage.python), *_with_ports(argv, rendered, config)[1:]],
        environment=_environment(container, stage, moved, changes),
        config=config,
        launcher=config_map["data"]["launch.py"],
        mounts=mounts,
        changes=changes,
    )


def _directory(folder: Path, mount: str) -> Path:
    return folder / mount.strip("/").replace("/", "-")


def _uris(config: Mapping[str, Any], stage: Stage) -> dict[str, str]:
    """The model's own URIs → those of the tiny model staged in its place."""
    found: dict[str, str] = {}
    for path in config["weights"]["paths"]:
        if str(path["source"]).startswith("s3://"):
            found[path["source"]] = stage.model_uri
        if path.get("manifest"):
            found[path["manifest"]] = stage.manifest_uri
    answer: Mapping[str, Any] = config["answer"] or {}
    if "manifest" in answer:
        found[answer["manifest"]] = stage.manifest_uri
    return found


def _moved(value: Any, moved: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON in, the same JSON out
    """A value with every path and URI that lies elsewhere here replaced."""
    if isinstance(value, str):
        for old, new in moved.items():
            if value == old or value.startswith(old.rstrip("/") + "/"):
                return new.rstrip("/") + value.removeprefix(old.rstrip("/")) if value != old else new
        return value
    if isinstance(value, list):
        return [_moved(inner, moved) for inner in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _moved(inner, moved) for key, inner in cast("dict[str, Any]", value).items()}
    return value


def _config(config: dict[str, Any], stage: Stage, changes: list[Change]) -> dict[str, Any]:
    changes.append(Change(what=f"gpus: {config['gpus']} → 0", why="there is none"))
    changes.append(
        Change(what=f"ports {config['port']}, {config['engine_port']} → {stage.ports}", why="free ones here")
    )
    config |= {"gpus": 0, "port": stage.ports[0], "engine_port": stage.ports[1]}
    for path in config["weights"]["paths"]:
        path["engine_args"] = _without_option(path["engine_args"], "--model-loader-extra-config", changes)
    return config


def _without_option(arguments: list[str], option: str, changes: list[Change]) -> list[str]:
    """Takes out distributed streaming: it needs several GPUs."""
    if option not in arguments or '"distributed": true' not in arguments[arguments.index(option) + 1]:
        return arguments
    at = arguments.index(option)
    changes.append(Change(what=f"{option} {arguments[at + 1]}", why="there are no GPUs to share the read"))
    return [*arguments[:at], *arguments[at + 2 :]]


def _without_gpu(argv: Sequence[str], changes: list[Change]) -> list[str]:
    """Takes out what needs a GPU, and shortens the context to what the tiny model is rehearsed with."""
    kept: list[str] = []
    dropping = False
    for index, argument in enumerate(argv):
        option = argument.partition("=")[0]
        if option.startswith("-"):
            dropping = option in GPU_ONLY
            if dropping:
                changes.append(Change(what=option, why=GPU_ONLY[option]))
        if dropping:
            continue
        previous = argv[index - 1] if index else ""
        if previous == "--max-model-len" and int(argument) > LONGEST_TOKENS:
            changes.append(
                Change(what=f"--max-model-len {argument} → {LONGEST_TOKENS}", why="the tiny model's context")
            )
            kept.append(str(LONGEST_TOKENS))
        else:
            kept.append(argument)
    return kept


def _with_ports(argv: Sequence[str], rendered: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    ports = {"--port": (str(rendered["engine_port"]), str(config["engine_port"]))}
    done: list[str] = []
    for index, argument in enumerate(argv):
        old, new = ports.get(argv[index - 1] if index else "", ("", ""))
        done.append(new if old and argument == old else argument)
    return done


def _environment(
    container: Mapping[str, Any], stage: Stage, moved: Mapping[str, str], changes: list[Change]
) -> dict[str, str]:
    environment = {"PATH": f"{stage.python.parent}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    for entry in container.get("env", []):
        if "value" in entry:
            environment[entry["name"]] = _moved(entry["value"], moved)
        else:
            environment[entry["name"]] = "rehearsal"
            changes.append(
                Change(what=f"{entry['name']} from a {next(iter(entry['valueFrom']))}", why="no cluster holds it")
            )
    environment |= stage.store_environment
    changes.append(Change(what=", ".join(sorted(stage.store_environment)), why="S3 is a server on loopback"))
    for name, (value, why) in CPU_ENVIRONMENT.items():
        environment[name] = value
        changes.append(Change(what=f"{name}={value}", why=why))
    if root := environment.get("VLLM_CACHE_ROOT"):
        environment["TORCHINDUCTOR_CACHE_DIR"] = f"{root}/torch_compile_cache/inductor"
        changes.append(Change(what="TORCHINDUCTOR_CACHE_DIR", why="inside what the compile cache keeps"))
    return environment
