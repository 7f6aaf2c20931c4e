"""The recorder's objects: valid, restricted, with no more rights than it needs."""

from __future__ import annotations

import ast
import sys
from typing import Any

import kubernetes_validate
import pytest

from budget.problems import BadInput
from infra.recorder import ROOMS, code
from serving.recorder import NAMESPACE, RecorderSpec, objects


def spec(**more: Any) -> RecorderSpec:
    return RecorderSpec(
        **{"image": "python:3.13", "code": code(), "keep": 100, "otlp_endpoint": None, "cloudwatch": False} | more
    )


def of_kind(kind: str, **more: Any) -> dict[str, Any]:
    return dict(next(manifest for manifest in objects(spec(**more)) if manifest["kind"] == kind))


def test_every_object_is_valid() -> None:
    for manifest in objects(spec(otlp_endpoint="http://collector.tracing:4318", replicas=2)):
        kubernetes_validate.validate(dict(manifest), "1.35", strict=True)


def test_rights_are_to_look_and_to_keep_and_no_more() -> None:
    look = of_kind("ClusterRole")["rules"]
    assert {(tuple(rule["resources"]), tuple(rule["verbs"])) for rule in look} == {
        (("pods", "nodes", "events"), ("list", "watch")),
        (("nodeclaims",), ("list",)),
    }
    keep = of_kind("Role")
    assert keep["metadata"]["namespace"] == NAMESPACE
    assert keep["rules"] == [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "list", "delete"]}]


def test_the_pod_is_restricted_and_small() -> None:
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["resources"]["limits"] == {"memory": "96Mi"}


def test_its_code_imports_the_standard_library_alone() -> None:
    for path, text in code().items():
        if not path.endswith(".py"):
            continue
        for statement in ast.parse(text).body:
            names = {
                ast.Import: lambda s: [alias.name for alias in s.names],
                ast.ImportFrom: lambda s: [s.module or ""],
            }.get(type(statement), lambda _: [])(statement)
            for name in names:
                first = name.split(".")[0]
                assert first in sys.stdlib_module_names or first in ROOMS, f"{path} imports {name}"


def test_the_configmap_changes_its_name_with_the_code() -> None:
    changed = dict(code()) | {"scripts/ledger/facts.py": "# another\n"}
    assert spec().code_name != spec(code=changed).code_name
    assert spec().code_name == spec().code_name


def test_every_file_of_the_code_has_its_path_in_the_volume() -> None:
    data = of_kind("ConfigMap")["data"]
    items = of_kind("Deployment")["spec"]["template"]["spec"]["volumes"][0]["configMap"]["items"]
    assert {item["key"] for item in items} == set(data)
    assert {item["path"]: data[item["key"]] for item in items} == dict(code())


def test_spans_open_one_more_way_out() -> None:
    def ports(**more: Any) -> set[int]:
        return {port["port"] for rule in of_kind("NetworkPolicy", **more)["spec"]["egress"] for port in rule["ports"]}

    assert ports() == {53, 443, 8001}
    assert ports(otlp_endpoint="http://collector.tracing:4318") == {53, 443, 8001, 4318}


def test_more_code_than_a_configmap_holds_is_refused() -> None:
    with pytest.raises(BadInput, match="A ConfigMap holds"):
        objects(spec(code={"x.py": "#" * 1_000_001}))
