"""A rendered pod made local: nothing changed that is not listed, and the picture of its starts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from infra.specs import model_specs
from infra.stack_file import read
from scripts.failure import Failure
from scripts.rehearsal.engine_env import engine_env
from scripts.rehearsal.local_pod import LocalPod, Stage, buckets, local_pod, workload
from scripts.rehearsal.picture import svg
from scripts.rehearsal.ports import free_ports
from scripts.rehearsal.site import changed
from scripts.rehearse import command
from serving.launcher.command import check_engine_argv
from serving.launcher.config import Config
from serving.manifests import objects

STACKS = ("dev-llama-3-1-8b", "dev-qwen2-5-0-5b", "dev-qwen3-32b")


def rendered(stack: str) -> Sequence[Any]:
    found = read(stack)
    assert found.model is not None
    return objects(model_specs(found, found.model).serving)


def local(stack: str, folder: Path) -> LocalPod:
    stage = Stage(
        python=Path("/env/bin/python"),
        folder=folder,
        ports=(7001, 7000),
        store_environment={"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        model_uri="s3://here/models/coldstart/tiny/aa/",
        manifest_uri="s3://here/manifests/coldstart/tiny/aa.json",
    )
    return local_pod(rendered(stack), stage)


@pytest.mark.parametrize("stack", STACKS)
def test_every_stack_becomes_a_pod_that_its_launcher_accepts(stack: str, tmp_path: Path) -> None:
    pod = local(stack, tmp_path)
    config = Config.from_json(json.loads(json.dumps(pod.config)))
    engine = pod.argv[list(pod.argv).index("--") + 1 :]
    check_engine_argv(engine, config)
    assert (config.port, config.engine_port, config.gpus) == (7001, 7000, 0)
    assert pod.argv[0] == "/env/bin/python"
    assert pod.argv[1] == str(tmp_path / "etc-coldstart/launch.py")
    assert all("s3://coldstart-" not in json.dumps(path.engine_args) for path in config.paths)
    assert {path.source for path in config.paths} == {"s3://here/models/coldstart/tiny/aa/"}
    assert config.answer_manifest == "s3://here/manifests/coldstart/tiny/aa.json"


@pytest.mark.parametrize("stack", STACKS)
def test_what_differs_is_listed(stack: str, tmp_path: Path) -> None:
    pod = local(stack, tmp_path)
    container, _ = workload(rendered(stack))
    told = " ".join(change.what for change in pod.changes)
    for argument in container["command"]:
        if argument.startswith("--") and argument != "--":
            assert argument in pod.argv or argument in told, argument
    for entry in container["env"]:
        here = pod.environment[entry["name"]]
        moved = any(entry.get("value", "").startswith(mount) for mount in pod.mounts)
        assert here == entry.get("value") or moved or entry["name"] in told, entry
    assert all(change.why for change in pod.changes)


def test_paths_of_the_pod_lie_in_the_folder(tmp_path: Path) -> None:
    pod = local("dev-llama-3-1-8b", tmp_path)
    assert pod.environment["VLLM_CACHE_ROOT"] == str(tmp_path / "cache/vllm")
    assert pod.environment["HOME"].startswith(str(tmp_path))
    assert pod.environment["TORCHINDUCTOR_CACHE_DIR"].startswith(str(tmp_path / "cache"))
    cache = pod.config["compile_cache"]
    assert cache["root"] == str(tmp_path / "cache")
    assert any(f"cache/{name}".startswith("cache/vllm/torch_compile_cache") for name in cache["include"])


def test_gpu_options_go_with_their_values(tmp_path: Path) -> None:
    pod = local("dev-llama-3-1-8b", tmp_path)
    assert "--cudagraph-capture-sizes" not in pod.argv
    assert not any(argument.isdigit() and int(argument) in {1, 2, 4, 8} for argument in pod.argv)
    assert pod.argv[list(pod.argv).index("--max-model-len") + 1] == "512"


def test_distributed_streaming_goes(tmp_path: Path) -> None:
    pod = local("dev-qwen3-32b", tmp_path)
    assert "distributed" not in json.dumps(pod.config["weights"])
    assert any("model-loader-extra-config" in change.what for change in pod.changes)


def test_the_buckets_a_pod_names() -> None:
    config = {
        "weights": {"paths": [{"source": "s3://a/x/"}, {"source": "/local"}]},
        "compile_cache": {"uri": "s3://b/cache/"},
    }
    assert buckets(config) == {"a", "b"}
    assert buckets(config | {"compile_cache": None}) == {"a"}


def test_objects_without_an_engine_are_refused() -> None:
    with pytest.raises(Failure, match="renders 0 engines and 0 launcher configurations"):
        workload([{"kind": "Namespace"}])


def test_a_member_of_the_configuration_can_be_replaced(tmp_path: Path) -> None:
    pod = local("dev-llama-3-1-8b", tmp_path)
    assert changed(pod, gpus=7).config["gpus"] == 7
    assert pod.config["gpus"] == 0


def test_ports_are_different() -> None:
    assert len(set(free_ports(8))) == 8


def test_without_an_engine_environment_it_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="make rehearse-env"):
        engine_env(tmp_path)


def test_an_environment_stack_has_no_pod() -> None:
    done = CliRunner().invoke(command, ["dev"])
    assert "Name a model stack" in str(done.exception)


def ledger(total_s: float, *, hit: bool | None) -> dict[str, Any]:
    bounds = [0.0, total_s * 0.2, total_s * 0.3, total_s * 0.9, total_s]
    phases = ["start", "weights", "engine", "warmup"]
    segments = [
        {"phases": [phase], "detail": "<detail & more>", "begin_s": low, "end_s": high}
        for phase, low, high in zip(phases, bounds, bounds[1:], strict=False)
    ]
    return {"total_s": total_s, "segments": segments, "weights": {"kind": "stream"}, "compile_cache": {"hit": hit}}


@pytest.mark.parametrize("total_s", [0.3, 12.0, 950.0])
def test_the_picture_shows_every_stretch(total_s: float) -> None:
    picture = svg([("first start", ledger(total_s, hit=False)), ("second start", ledger(total_s / 2, hit=True))])
    root = ET.fromstring(picture)  # noqa: S314 - our own text
    texts = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == f"first start: {total_s:.1f} s"
    assert "weights by stream, compile cache hit" in texts
    bars = [element for element in root.iter("{http://www.w3.org/2000/svg}rect") if element.get("rx")]
    assert len(bars) == 8
    assert all(0 <= float(bar.get("x", -1)) <= 960 - 24 for bar in bars)
    assert all(float(bar.get("x", 0)) + float(bar.get("width", 0)) <= 960 - 24 + 1 for bar in bars)


def test_stretches_nobody_told_apart_are_shown_as_such() -> None:
    shared = ledger(10.0, hit=None)
    shared["segments"][1]["phases"] = ["weights", "engine"]
    texts = svg([("x", shared)])
    assert "weights + engine" in texts
    assert "compile cache not seen" in texts
