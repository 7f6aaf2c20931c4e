"""Which lever was on in this start: proof from the running node and pod, never from the configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scripts.ledger.bundle import Bundle
from scripts.ledger.facts import Pull
from scripts.ledger.known import Known
from scripts.ledger.pod_facts import engine_container, gpus_asked
from scripts.ledger.raw import Object, mapping, number, objects, text, whole
from scripts.ledger.record import Ledger, Proof
from serving.launcher.engine_log import Sighting

ON, OFF, UNKNOWN = "on", "off", "unknown"
GIB = 2**30
MIB = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What the proofs look at.

    Attributes:
        ran: the engine's container has run, by its status or by what it wrote: only then does the pod object say what
            was, and not what was wanted.
    """

    bundle: Bundle
    ledger: Ledger
    seen: Mapping[str, Sequence[Sighting]]
    launcher: Object
    pulls: Sequence[Pull]
    ran: bool

    @property
    def not_ran(self) -> str:
        """Why nothing can be proved of a container that has not run."""
        reason = self.ledger.reason or "nothing says that it was started"
        return f"the engine's container has not run: {reason}"

    def line(self, *names: str) -> Sighting | None:
        """The first sighting of any of these names."""
        return next((found[0] for name in names if (found := self.seen.get(name))), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Outcome of one proof."""

    state: str
    evidence: str
    source: str = ""
    value: Mapping[str, float | int | str] | None = None


def proofs(bundle: Bundle, ledger: Ledger, known: Known) -> list[Proof]:
    """One proof per lever, in the order of the phases."""
    seen: dict[str, list[Sighting]] = {}
    for sighting in known.engine.sightings:
        seen.setdefault(sighting.name, []).append(sighting)
    case = Case(
        bundle=bundle, ledger=ledger, seen=seen, launcher=known.launcher, pulls=known.events.pulls, ran=_ran(known)
    )
    found: list[Proof] = []
    for lever, (phase, prove) in LEVERS.items():
        verdict = prove(case)
        if verdict is not None:
            found.append(
                Proof(
                    lever=lever,
                    state=verdict.state,
                    evidence=verdict.evidence,
                    source=verdict.source,
                    phase=phase,
                    value=verdict.value or {},
                )
            )
    return found


def _ran(known: Known) -> bool:
    started = known.moment("container-started") or known.events.first_started or known.restarts
    return bool(started or known.in_pod or known.engine.sightings)


# ---- pull ----------------------------------------------------------------------------------------------------------


def _soci(case: Case) -> Verdict:
    """Pulls go through SOCI when the kubelet's image service is SOCI's socket; its own file says its values."""
    endpoint = text(case.bundle.configz, "kubeletconfig.imageServiceEndpoint")
    values = {
        key: value for key, value in mapping(case.bundle.probe, "soci").items() if isinstance(value, int | float | str)
    }
    if "soci" in endpoint or (values and not case.bundle.configz):
        shown = (
            ", ".join(f"{key}={value}" for key, value in values.items()) or "its values were not read (--probe-node)"
        )
        where = f"imageServiceEndpoint {endpoint}" if endpoint else "the node's SOCI configuration"
        return Verdict(state=ON, evidence=f"{where}; {shown}", source="configz" if endpoint else "probe", value=values)
    if case.bundle.configz:
        unused = "; SOCI is configured on the node and not used" if values else ""
        evidence = f"the kubelet pulls through {endpoint or 'the runtime itself'}{unused}"
        return Verdict(state=OFF, evidence=evidence, source="configz", value=values)
    return Verdict(
        state=UNKNOWN, evidence=case.bundle.why("configz", "the kubelet's configz was not read (nodes/proxy)")
    )


IMAGE_DIRS = ("/var/lib/containerd", "/var/lib/soci-snapshotter")
_DISKS = {"Amazon EC2 NVMe Instance Storage": "nvme", "Amazon Elastic Block Store": "ebs"}
"""Model of a disk as the kernel reads it from the device → kind (EC2 user guide, NVMe devices)."""


def _image_disk(case: Case) -> Verdict:
    mounts = {text(entry, "path"): entry for entry in objects(case.bundle.probe, "mounts")}
    found = {path: mounts[path] for path in IMAGE_DIRS if path in mounts}
    if not found:
        return Verdict(
            state=UNKNOWN, evidence=case.bundle.why("probe", "mounts of the node were not read (--probe-node)")
        )
    kinds = {path: _DISKS.get(text(entry, "model"), text(entry, "model") or "unknown") for path, entry in found.items()}
    shown = ", ".join(f"{path} on {kind} ({text(found[path], 'device')})" for path, kind in kinds.items())
    meant = text(case.bundle.probe, "meant")
    one_disk = len(set(kinds.values())) == 1 and len(found) == len(IMAGE_DIRS)
    right = one_disk and (not meant or set(kinds.values()) == {meant})
    wanted = f"; {meant} was meant" if meant and not right else ""
    return Verdict(state=ON if right else OFF, evidence=shown + wanted, source="probe", value=dict(kinds))


def _pull_rate(case: Case) -> Verdict:
    engine = engine_container(case.bundle.pod)
    pull = next((pull for pull in case.pulls if pull.container in {engine, ""}), None)
    if pull is None:
        return Verdict(state=UNKNOWN, evidence="no event of the pull")
    if pull.present:
        return Verdict(state=UNKNOWN, evidence=f"nothing was pulled: {pull.ended.evidence}", source="events")
    if not pull.image_bytes or not pull.seconds:
        return Verdict(
            state=UNKNOWN, evidence=f"the kubelet gave no size or no duration: {pull.ended.evidence}", source="events"
        )
    rate = pull.image_bytes / pull.seconds / MIB
    value = {"bytes": pull.image_bytes, "seconds": round(pull.seconds, 3), "mib_s": round(rate, 1)}
    expected = case.ledger.budget.get("pull")
    if expected is None or not expected.expected_s:
        return Verdict(
            state=UNKNOWN, evidence=f"{rate:.0f} MiB/s; no budget to compare with", source="events", value=value
        )
    simulated = pull.image_bytes / expected.expected_s / MIB
    value |= {"simulated_mib_s": round(simulated, 1)}
    good = pull.seconds <= expected.high_s
    return Verdict(
        state=ON if good else OFF,
        evidence=f"{rate:.0f} MiB/s achieved, {simulated:.0f} MiB/s simulated",
        source="events",
        value=value,
    )


# ---- weights -------------------------------------------------------------------------------------------------------


def _streamed(case: Case) -> Verdict:
    kind = text(case.launcher, "weights.kind")
    size, read_s = whole(case.launcher, "weights.weights_bytes"), number(case.launcher, "weights.read_s")
    line = case.line("streamed")
    if line is not None:
        value, evidence = _rate(size, read_s) or _stated_rate(line), line.line
        return Verdict(state=ON, evidence=evidence, source="log", value=value)
    if kind and not _loaded(case, read_s):
        evidence = f"the launcher means to load by {kind}; the weights were not read"
        return Verdict(state=UNKNOWN, evidence=evidence)
    if kind:
        state = ON if kind in {"stream", "presharded"} else OFF
        rate = _rate(size, read_s)
        shown = f", {rate['mib_s']:.0f} MiB/s" if rate else ""
        return Verdict(state=state, evidence=f"the launcher loaded by {kind}{shown}", source="launcher", value=rate)
    progress = case.line("progress_done")
    if progress is not None and "Runai" in progress.line:
        return Verdict(state=ON, evidence=progress.line, source="log")
    loader = case.line("weights_read")
    if loader is not None:
        return Verdict(state=OFF, evidence=f"the default loader: {loader.line}", source="log")
    return Verdict(state=UNKNOWN, evidence="no line of a loader")


def _loaded(case: Case, read_s: float | None) -> bool:
    """Whether the weights were read: the launcher names its path before it takes it."""
    over = text(case.launcher, "state") in {"ready", "refused"}
    return over or read_s is not None or case.ledger.phases["weights"].seconds is not None


LEAST_S = 0.001
"""Of a read: what takes less has no rate."""


def _rate(size: int | None, read_s: float | None) -> dict[str, float | int | str]:
    if not size or size < 0 or not read_s or read_s < LEAST_S:
        return {}
    return {"bytes": size, "seconds": round(read_s, 3), "mib_s": round(size / read_s / MIB, 1)}


_STREAM_UNITS = {"Bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def _stated_rate(line: Sighting) -> dict[str, float | int | str]:
    size = int(float(line.values.get("n", "0")) * _STREAM_UNITS.get(line.values.get("unit", ""), 0))
    return _rate(size, line.seconds())


def _distributed(case: Case) -> Verdict | None:
    """Only for pods of several GPUs: one rank has nobody to share with."""
    if gpus_asked(case.bundle.pod) <= 1 and not case.line("distributed", "not_distributed"):
        return None
    ranks = whole(case.launcher, "weights.distributed_ranks")
    if found := case.line("not_distributed"):
        return Verdict(state=OFF, evidence=found.line, source="log")
    if found := case.line("distributed"):
        return Verdict(state=ON, evidence=found.line, source="log")
    if ranks is not None:
        return Verdict(
            state=ON if ranks else OFF, evidence=f"the launcher saw {ranks} ranks share one read", source="launcher"
        )
    return Verdict(state=UNKNOWN, evidence="no line of the streamer about it: is RUNAI_STREAMER_LOG_TO_STDERR=1 set?")


NAT_SHARE_ON, NAT_SHARE_OFF = 0.1, 0.5


def _gateway(case: Case) -> Verdict:
    """Weights and image came through the gateway endpoint if the NAT gateways carried far fewer bytes."""
    nat = number(case.bundle.traffic, "nat_bytes")
    moved = (whole(case.launcher, "weights.weights_bytes") or 0) + sum(
        pull.image_bytes or 0 for pull in case.pulls if not pull.present
    )
    if nat is None:
        return Verdict(
            state=UNKNOWN, evidence=case.bundle.why("traffic", "bytes of the NAT gateways were not read (--aws)")
        )
    if not case.ran and not moved:
        return Verdict(state=UNKNOWN, evidence=f"no bytes were moved; {case.not_ran}")
    value = {"nat_bytes": int(nat), "weights_and_image_bytes": moved}
    evidence = f"NAT gateways carried {nat / GIB:.2f} GiB, weights and image are {moved / GIB:.2f} GiB"
    if whole(case.bundle.traffic, "nat_gateways") == 0:
        return Verdict(state=ON, evidence="the network has no NAT gateway", source="cloudwatch", value=value)
    if not moved:
        return Verdict(
            state=UNKNOWN, evidence="nothing was moved that could be compared", source="cloudwatch", value=value
        )
    share = nat / moved
    state = ON if share < NAT_SHARE_ON else OFF if share > NAT_SHARE_OFF else UNKNOWN
    return Verdict(state=state, evidence=evidence, source="cloudwatch", value=value)


_STATIC = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def _identity(case: Case) -> Verdict:
    """What the pod's environment holds once admission has changed it: that is what ran."""
    name = engine_container(case.bundle.pod)
    container = next((c for c in objects(case.bundle.pod, "spec.containers") if text(c, "name") == name), None)
    if container is None:
        return Verdict(state=UNKNOWN, evidence="no pod object was read")
    if not case.ran:
        return Verdict(state=UNKNOWN, evidence=case.not_ran)
    environment = {text(entry, "name"): text(entry, "value") for entry in objects(container, "env")}
    account = text(case.bundle.pod, "spec.serviceAccountName") or "default"
    if static := [key for key in _STATIC if key in environment]:
        return Verdict(state=OFF, evidence=f"static keys in the environment: {', '.join(static)}", source="pod")
    if uri := environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        return Verdict(state=ON, evidence=f"EKS Pod Identity for service account {account} ({uri})", source="pod")
    if role := environment.get("AWS_ROLE_ARN"):
        return Verdict(state=ON, evidence=f"IRSA: {role}", source="pod")
    return Verdict(
        state=OFF, evidence=f"service account {account} brings no AWS identity: the node's role is used", source="pod"
    )


# ---- engine --------------------------------------------------------------------------------------------------------


def _compile_cache(case: Case) -> Verdict:
    cache = mapping(case.launcher, "compile_cache")
    hit, restore = cache.get("hit"), text(cache, "restore")
    if isinstance(hit, bool):
        evidence = text(cache, "evidence") or f"restore: {restore}"
        return Verdict(state=ON if hit else OFF, evidence=evidence, source="launcher")
    miss, found = case.line("cache_miss"), case.line("cache_hit")
    if miss or found:
        line = miss or found
        return Verdict(state=OFF if miss else ON, evidence=line.line if line else "", source="log")
    if restore == "off":
        return Verdict(state=OFF, evidence="no compile cache is configured", source="launcher")
    return Verdict(state=UNKNOWN, evidence="the engine says neither hit nor miss")


_EAGER = re.compile(r"enforce_eager=True|'enforce_eager': True")


def _graphs(case: Case) -> Verdict:
    log = case.bundle.log or ""
    if _EAGER.search(log):
        return Verdict(state=OFF, evidence="enforce_eager: nothing is captured", source="log")
    sizes, progress, captured = case.line("capture_sizes"), case.line("capture_progress"), case.line("graphs_captured")
    value: dict[str, float | int | str] = {}
    if progress:
        value["sizes"] = int(progress.values["of"])
    elif sizes:
        listed = [entry for entry in sizes.values["sizes"].split(",") if entry.strip()]
        value["sizes"] = len(listed)
    seconds = captured.seconds() if captured else number(case.launcher, "engine.graph_capture_s")
    if seconds is not None:
        value["seconds"] = seconds
    if seconds is not None or progress:
        line = captured or progress
        count = f"{value['sizes']} sizes, " if "sizes" in value else ""
        return Verdict(
            state=ON, evidence=count + (line.line if line else f"captured in {seconds:g} s"), source="log", value=value
        )
    if value.get("sizes") == 0:
        return Verdict(state=OFF, evidence="the engine was told to capture no sizes", source="log", value=value)
    return Verdict(state=UNKNOWN, evidence="no line about captured graphs", value=value)


def _startup_plan(case: Case) -> Verdict:
    line = case.line("startup_plan")
    said = text(case.launcher, "engine.startup_plan") or (line.values.get("what", "") if line else "")
    if not said:
        return Verdict(state=UNKNOWN, evidence="no line about a start-up plan (vLLM 0.27.1 and newer have one)")
    return Verdict(
        state=ON if said.startswith("Applying") else OFF, evidence=said, source="log" if line else "launcher"
    )


def _warm(case: Case) -> Verdict:
    warmup = mapping(case.launcher, "warmup")
    if not warmup:
        return Verdict(state=UNKNOWN, evidence="no launcher: nothing says that requests ran before Ready")
    requests = whole(warmup, "requests") or 0
    first_s, steady_s = number(warmup, "first_s"), number(warmup, "steady_s")
    value: dict[str, float | int | str] = {"requests": requests}
    if first_s is not None and steady_s is not None:
        value |= {"first_s": first_s, "steady_s": steady_s}
    if not requests:
        return Verdict(state=OFF, evidence="no request of the warm-up was answered", source="launcher", value=value)
    steady = warmup.get("steady") is True
    shown = f", first {first_s:.2f} s, steady {steady_s:.2f} s" if first_s is not None and steady_s is not None else ""
    return Verdict(
        state=ON if steady else OFF,
        evidence=f"{requests} requests{shown}" + ("" if steady else ": not steady when the time was up"),
        source="launcher",
        value=value,
    )


Prove = Callable[[Case], Verdict | None]

LEVERS: Mapping[str, tuple[str, Prove]] = {
    "soci": ("pull", _soci),
    "image-disk": ("pull", _image_disk),
    "pull-rate": ("pull", _pull_rate),
    "weights-streamed": ("weights", _streamed),
    "distributed-streaming": ("weights", _distributed),
    "gateway-endpoint": ("weights", _gateway),
    "identity": ("weights", _identity),
    "compile-cache": ("engine", _compile_cache),
    "graph-sizes": ("engine", _graphs),
    "startup-plan": ("engine", _startup_plan),
    "warm-up": ("warmup", _warm),
}
"""Lever → the phase it shortens, and the proof of it."""
