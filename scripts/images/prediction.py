"""What pulling an image takes on an instance: the budget's simulator, fed with true layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from budget.coefficients import coefficients
from budget.disk import Disk
from budget.estimate import Estimate
from budget.image import pull_phase
from budget.instances import Instance
from budget.levers import GP3_TUNED
from budget.scenario import HostCase, ImageCase, LayerCase, ModelCase, PullCase, Registry, Scenario
from nodeconfig.soci import tune
from scripts.images.codec import Codec

NO_MODEL = ModelCase(weights_bytes=1.0, layers=1, parameters=1.0)
"""A pull does not depend on the model."""
DEFAULT_CONTAINERD = PullCase(
    snapshotter="overlayfs", downloads=3, unpacks=1, chunk_bytes=None, decompressor="unpigz", discard=False
)
"""containerd as a node has it when nobody tunes anything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """A layer as a pull sees it."""

    bytes: float
    unpacked_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Puller:
    """A node that pulls.

    Attributes:
        scenario: everything but the image's layers; a stack's own, or an instance type with its computed tuning.
        tuned: the tuning follows the layers; a stack's own stays as it is set.
    """

    scenario: Scenario
    tuned: bool = True

    @property
    def instance(self) -> Instance:
        """What it runs on."""
        return self.scenario.instance

    def soci(self, layers: Sequence[Sizes], codec: Codec) -> Estimate:
        """Seconds with SOCI parallel pull, tuned as the project configures nodes."""
        pull = self._tuning(layers) if self.tuned else self.scenario.pull
        return self._predict(layers, replace(pull, decompressor="zstd" if codec == "zstd" else "igzip"))

    def containerd(self, layers: Sequence[Sizes], codec: Codec) -> Estimate:
        """Seconds with default containerd."""
        pull = DEFAULT_CONTAINERD
        return self._predict(layers, replace(pull, decompressor="zstd") if codec == "zstd" else pull)

    def _predict(self, layers: Sequence[Sizes], pull: PullCase) -> Estimate:
        cases = tuple(LayerCase(bytes=max(1.0, each.bytes), unpacked_bytes=each.unpacked_bytes) for each in layers)
        image = replace(
            self.scenario.image, bytes=sum(case.bytes for case in cases), layers=cases, unpack_ratio=None, cached=False
        )
        return pull_phase(replace(self.scenario, image=image, pull=pull), coefficients())

    def _tuning(self, layers: Sequence[Sizes]) -> PullCase:
        tuning = tune(self.instance, [max(1, round(each.bytes)) for each in layers])
        return PullCase(
            snapshotter="soci",
            downloads=tuning.downloads.value,
            unpacks=tuning.unpacks.value,
            chunk_bytes=tuning.chunk_mib.value * 2**20,
            discard=tuning.discard,
        )


def puller(instance: Instance, *, registry: Registry = "ecr", host: HostCase | None = None) -> Puller:
    """A node of this type as the project sets it up.

    Args:
        instance: its type.
        registry: where it pulls from.
        host: measured factors that replace those of the instance table.
    """
    disk = Disk(kind="nvme") if instance.nvme_disks else GP3_TUNED
    scenario = Scenario(
        instance=instance,
        image=ImageCase(bytes=1.0, registry=registry),
        model=NO_MODEL,
        disk=disk,
        host=host or HostCase(),
    )
    return Puller(scenario=scenario)
