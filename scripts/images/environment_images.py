"""Every image that an environment runs and that is not in the region already."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx2 as httpx
import yaml

from budget.instances import gpu_instance
from infra.addons import AUTOSCALER, KEDA, Chart
from infra.environment_settings import Egress, Environment, Presence
from infra.stack_file import STACKS, Stack, names, read
from scripts.failure import Failure
from scripts.registry import ARCHITECTURES

TIMEOUT_S = 30
SYSTEM_ARCHITECTURE = "amd64"
"""System nodes are x86: their instance types are m7i and m6i."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Needed:
    """One image that has to be in the region.

    Attributes:
        reference: as it is written now.
        architectures: that its nodes have.
        of: what needs it.
    """

    reference: str
    architectures: frozenset[str]
    of: str


def needed_images(stack: Stack, *, client: httpx.Client | None = None, directory: Path = STACKS) -> Sequence[Needed]:
    """The images of an environment and of every model on it; of a model stack, its engine's.

    Images of EKS add-ons are not among them: EKS pulls those from its own registry in the region.

    Args:
        stack: an environment or a model.
        client: for chart repositories.
        directory: where stack files are.

    Raises:
        BadInput: a stack file beside it is wrong.
        Failure: a chart repository doesn't answer, or doesn't have the chart.
    """
    if stack.model is not None:
        return [_engine(stack)]
    models = [read(name, directory) for name in names(directory) if name != stack.name]
    engines = [_engine(each) for each in models if each.model is not None and each.environment_name == stack.name]
    return _joined([*engines, *_recorder(stack.environment), *_controllers(stack.environment, client)])


def _engine(stack: Stack) -> Needed:
    if stack.model is None:
        raise ValueError(f"{stack.name} is not a model")
    arch = gpu_instance(stack.model.nodes.instance, where="model.nodes.instance").arch
    return Needed(reference=stack.model.image, architectures=frozenset([ARCHITECTURES[arch]]), of=stack.name)


def _joined(images: Sequence[Needed]) -> Sequence[Needed]:
    """One entry an image, for all that need it."""
    joined: dict[str, Needed] = {}
    for image in images:
        known = joined.get(image.reference)
        joined[image.reference] = (
            image
            if known is None
            else Needed(
                reference=image.reference,
                architectures=known.architectures | image.architectures,
                of=f"{known.of}, {image.of}",
            )
        )
    return list(joined.values())


def _recorder(environment: Environment) -> Iterator[Needed]:
    if environment.recorder is not None:
        architectures = frozenset([SYSTEM_ARCHITECTURE])
        yield Needed(reference=environment.recorder.image, architectures=architectures, of="recorder")


def _controllers(environment: Environment, client: httpx.Client | None) -> Iterator[Needed]:
    addons = environment.addons
    charts = [(KEDA, addons.keda), (AUTOSCALER, addons.cluster_autoscaler)]
    with client or httpx.Client(timeout=TIMEOUT_S, follow_redirects=True) as asked:
        for chart, presence in charts:
            # Without egress nobody but a person can install them, and only from a copy.
            if presence is Presence.INSTALL or environment.network.egress is Egress.NONE:
                yield from chart_images(chart, asked)


def chart_images(chart: Chart, client: httpx.Client) -> Iterator[Needed]:
    """The images that a chart installs with its default values.

    Raises:
        Failure: its repository doesn't answer, or doesn't have this version.
    """
    address = f"{chart.repository}/index.yaml"
    try:
        answer = client.get(address)
        answer.raise_for_status()
        index: object = yaml.safe_load(answer.text)
    except (httpx.HTTPError, yaml.YAMLError) as error:
        raise Failure(f"{chart.name} {chart.version}: {address} does not answer: {error}") from error
    entries = cast("Mapping[str, Sequence[Mapping[str, Any]]]", cast("Mapping[str, Any]", index).get("entries") or {})
    version = next((each for each in entries.get(chart.name, ()) if each.get("version") == chart.version), None)
    if version is None:
        raise Failure(f"{address} has no {chart.name} {chart.version}")
    app_version = str(version["appVersion"]).removeprefix("v")
    for image in _table()[chart.name]:
        yield Needed(
            reference=image.format(app_version=app_version),
            architectures=frozenset([SYSTEM_ARCHITECTURE]),
            of=f"{chart.name} {chart.version}",
        )


def _table() -> Mapping[str, Sequence[str]]:
    text = Path(__file__).with_name("controllers.json").read_text(encoding="utf-8")
    return cast("Mapping[str, Sequence[str]]", json.loads(text)["charts"])
