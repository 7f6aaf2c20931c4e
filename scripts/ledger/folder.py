"""A start as a folder of plain files, so that it can be measured again, offline, by somebody else.

    pod.json  events.json  node.json  node-claim.json  lease.json  instance.json    as the APIs have them
    launcher.json                                                                 the launcher's ledger
    engine.log  previous.log                                                      the engine's container
    configz.json  probe.json  traffic.json  seen.json                             what was read of node and network
    kubelet.metrics                                                               Prometheus text
    collected.json                                                                when, and what could not be read

Every file is optional. A folder of such folders is several starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from budget.problems import BadInput, Problem, bad_input
from scripts.ledger.bundle import Bundle
from scripts.ledger.facts import Absence
from scripts.ledger.raw import Object, number, object_of, objects, parsed, text
from scripts.ledger.redaction import clean, clean_text
from scripts.ledger.times import plausible

OBJECTS = {
    "pod": "pod.json",
    "node": "node.json",
    "node_claim": "node-claim.json",
    "lease": "lease.json",
    "instance": "instance.json",
    "launcher": "launcher.json",
    "configz": "configz.json",
    "probe": "probe.json",
    "traffic": "traffic.json",
    "seen": "seen.json",
}
TEXTS = {
    "log": "engine.log",
    "previous_log": "previous.log",
    "kubelet_metrics": "kubelet.metrics",
}
KINDS: Mapping[str, str] = {"pod": "Pod", "node": "Node", "node_claim": "NodeClaim", "lease": "Lease"}
"""What Kubernetes calls the objects of these files."""
EVENTS, COLLECTED = "events.json", "collected.json"
FILES = (*OBJECTS.values(), *TEXTS.values(), EVENTS, COLLECTED)


def starts_in(directory: Path, unreadable: list[Problem] | None = None) -> Sequence[Path]:
    """The folders of single starts in a folder: itself, or those below it.

    Args:
        directory: as a person named it.
        unreadable: takes the folders below that can't be read; None makes the first of them an error.

    Raises:
        BadInput: there is no such folder, it can't be read, or nothing of a start is in it.
    """
    try:
        if not directory.is_dir():
            raise bad_input(str(directory), "is not a folder", "Name one that --save wrote.")
        entries = sorted(directory.iterdir())
        if _is_start(directory):
            return [directory]
    except OSError as error:
        raise BadInput([_unreadable(directory, error)]) from error
    below: list[Path] = []
    for path in entries:
        try:
            if path.is_dir() and _is_start(path):
                below.append(path)
        except OSError as error:
            if unreadable is None:
                raise BadInput([_unreadable(path, error)]) from error
            unreadable.append(_unreadable(path, error))
    if not below and not unreadable:
        known = ", ".join(name for name in FILES if name != COLLECTED)
        raise bad_input(str(directory), "holds no start", f"A start is a folder with at least one of: {known}.")
    return below


def _unreadable(directory: Path, error: OSError) -> Problem:
    where = error.filename or str(directory)
    return Problem(str(where), f"can't be read: {error.strerror}", "Make it readable for yourself.")


def _is_start(directory: Path) -> bool:
    return any((directory / name).is_file() for name in FILES if name != COLLECTED)


def load(directory: Path) -> Bundle:
    """One start; a file that can't be read is an absence, never an error."""
    absences: list[Absence] = []
    values: dict[str, Any] = {}
    for field, name in OBJECTS.items():
        found = _json(directory / name, field, absences)
        wanted, kind = KINDS.get(field, ""), text(found, "kind")
        if found is not None and not isinstance(found, dict):
            absences.append(Absence(what=field, why=f"{name} holds no JSON object"))
        elif wanted and kind not in {"", wanted}:
            why = f"{name} holds a {kind}, not a {wanted}: save it by `kubectl get {wanted.lower()} NAME -o json`"
            absences.append(Absence(what=field, why=why))
        elif found is not None:
            values[field] = found
    for field, name in TEXTS.items():
        text_found = _text(directory / name, field, absences)
        if text_found is not None:
            values[field] = text_found
    collected = object_of(_json(directory / COLLECTED, "collected", absences))
    collected_s = _collected_s(collected, directory, absences)
    said = [Absence(what=text(entry, "what"), why=text(entry, "why")) for entry in objects(collected, "absences")]
    return Bundle(
        **values,
        events=_events(directory, absences),
        collected_s=collected_s,
        absences=(*said, *absences),
    )


def _collected_s(collected: Object, directory: Path, absences: list[Absence]) -> float:
    """When the start was read; where nothing says so, when the newest file was written: in about the right year."""
    stated = number(collected, "collected_s")
    if stated is not None and plausible(stated):
        return stated
    if stated is not None:
        why = f"{COLLECTED}: collected_s is {stated:g}, which is not a Unix time of the years 1970 to 2200"
        absences.append(Absence(what="collected", why=why))
    files = (directory / name for name in FILES)
    return max((path.stat().st_mtime for path in files if path.is_file()), default=0.0)


def _events(directory: Path, absences: list[Absence]) -> Sequence[Object]:
    found = _json(directory / EVENTS, "events", absences)
    if found is None:
        return ()
    whole: Object = {"items": found} if isinstance(found, list) else object_of(found)
    if "items" in whole:
        return objects(whole, "items")
    absences.append(Absence(what="events", why=f"{EVENTS} holds no list of events"))
    return ()


def _text(path: Path, what: str, absences: list[Absence]) -> str | None:
    try:
        if not path.exists():
            return None
        if not (path.is_file() or path.is_dir()):
            absences.append(Absence(what=what, why=f"{path.name} is not a file"))
            return None
        return path.read_bytes().decode("utf-8-sig", "replace")
    except OSError as error:
        absences.append(Absence(what=what, why=f"{path.name}: {error.strerror}"))
        return None


def _json(path: Path, what: str, absences: list[Absence]) -> object:
    read = _text(path, what, absences)
    if read is None:
        return None
    try:
        return parsed(read)
    except ValueError as error:
        absences.append(Absence(what=what, why=f"{path.name} is not JSON: {error}"))
        return None


def save(bundle: Bundle, directory: Path) -> Sequence[Path]:
    """Writes a start without its secrets and returns the files."""
    directory.mkdir(parents=True, exist_ok=True)
    written: dict[str, str] = {}
    for field, name in OBJECTS.items():
        if value := getattr(bundle, field):
            written[name] = _dumped(value)
    for field, name in TEXTS.items():
        if value := getattr(bundle, field):
            written[name] = clean_text(value)
    if bundle.events:
        written[EVENTS] = _dumped(list(bundle.events))
    absences = [{"what": absence.what, "why": absence.why} for absence in bundle.absences]
    written[COLLECTED] = _dumped({"collected_s": bundle.collected_s, "absences": absences})
    for name, content in written.items():
        (directory / name).write_text(content, encoding="utf-8")
    return [directory / name for name in written]


def _dumped(value: Any) -> str:  # noqa: ANN401 - any JSON value
    plain = json.loads(json.dumps(value, default=dict))
    return json.dumps(clean(plain), indent=1, sort_keys=True) + "\n"
