"""A place for one test to run the real Pulumi engine in, with nothing of the user's: home, state, plugins, clouds.

    workspace.stack("dev").up()

Everything is in one temporary folder. The AWS provider is the stand-in of tests/standin, against moto; a cluster is
the control plane that the workspace was given. Every command returns an Outcome read from the engine's own events.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.standin.faults import Fault, Faults
from tests.standin.processes import Moto, write_launchers
from tests.standin.records import Record, Records
from tests.toolchain.control_plane import ControlPlane
from tests.toolchain.engines import ROOT, TOOLS, engine

ROOMS = ("budget", "infra", "nodeconfig", "scripts", "serving")
COMMAND_LIMIT_S = 600
SAME = ("same", "read", "refresh")
"""Operations that change nothing."""


@dataclass(frozen=True)
class Step:
    """What the engine did, or would do, with one resource.

    Attributes:
        urn, type, name: which one.
        op: create, update, delete, same, replace, create-replacement, delete-replaced, read, refresh, import, ...
        diff: property paths that differ.
    """

    urn: str
    type: str
    name: str
    op: str
    diff: tuple[str, ...]


@dataclass(frozen=True)
class Diagnostic:
    """A message of the engine, of a provider or of the program."""

    severity: str
    message: str
    urn: str


class CommandError(AssertionError):
    """A command that should have succeeded did not; the text is what a person would have seen."""


@dataclass(frozen=True)
class Outcome:
    """One command of the engine.

    Attributes:
        command: what was run.
        code: its exit code.
        steps: one for each step of the engine, in its order. A replacement is several.
        diagnostics: messages, in order.
        text: what was printed.
        duration_s: how long it took.
    """

    command: str
    code: int
    steps: tuple[Step, ...]
    diagnostics: tuple[Diagnostic, ...]
    text: str
    duration_s: float

    @property
    def changes(self) -> dict[str, list[str]]:
        """What changes: operation → `type name`, sorted; without the stack itself and without what stays."""
        found: dict[str, list[str]] = {}
        for step in self.steps:
            if step.op not in SAME and not step.type.startswith("pulumi:pulumi:Stack"):
                found.setdefault(step.op, []).append(f"{step.type} {step.name}")
        return {op: sorted(names) for op, names in sorted(found.items())}

    @property
    def errors(self) -> list[str]:
        """Messages of severity error, without colours."""
        return [each.message for each in self.diagnostics if each.severity == "error"]

    @property
    def warnings(self) -> list[str]:
        """Messages of severity warning."""
        return [each.message for each in self.diagnostics if each.severity == "warning"]

    def step(self, name: str, kind: str = "") -> Step:
        """The step of the resource of that name, and of that type if several have the name."""
        found = [step for step in self.steps if step.name == name and step.type.endswith(kind)]
        assert len(found) == 1, f"{name} {kind}: {found}"
        return found[0]


class Stack:
    """One stack of a workspace."""

    def __init__(self, workspace: Workspace, name: str) -> None:
        self._workspace = workspace
        self.name = name

    def preview(self, *flags: str, fails: bool = False) -> Outcome:
        """`pulumi preview`."""
        return self._run("preview", *flags, fails=fails)

    def up(self, *flags: str, fails: bool = False, after_preview: bool = False) -> Outcome:
        """`pulumi up`; a person's comes after a preview."""
        skipped = () if after_preview else ("--skip-preview",)
        return self._run("up", *skipped, "--yes", *flags, fails=fails)

    def refresh(self, *flags: str, fails: bool = False) -> Outcome:
        """`pulumi refresh`: the state is made to match the world."""
        return self._run("refresh", "--skip-preview", "--yes", *flags, fails=fails)

    def destroy(self, *flags: str, fails: bool = False) -> Outcome:
        """`pulumi destroy`."""
        return self._run("destroy", "--skip-preview", "--yes", *flags, fails=fails)

    def set_config(self, path: str, value: str, *flags: str) -> None:
        """`pulumi config set --path`."""
        self._workspace.pulumi("config", "set", "--stack", self.name, "--path", path, value, *flags)

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs, secrets shown."""
        return json.loads(self._workspace.pulumi("stack", "output", "--stack", self.name, "--json", "--show-secrets"))

    def state(self) -> dict[str, Any]:
        """The stack's state, by URN; secrets stay encrypted."""
        exported = json.loads(self._workspace.pulumi("stack", "export", "--stack", self.name))
        return {resource["urn"]: resource for resource in exported["deployment"].get("resources", [])}

    def _run(self, command: str, *flags: str, fails: bool) -> Outcome:
        log = self._workspace.folder / f"events-{time.monotonic_ns()}.jsonl"
        arguments = [command, "--stack", self.name, "--color", "never", "--event-log", str(log), *flags]
        started = time.monotonic()
        done = self._workspace.run_pulumi(arguments)
        events = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        outcome = Outcome(
            command=command,
            code=done.returncode,
            steps=tuple(_steps(events)),
            diagnostics=tuple(_diagnostics(events)),
            text=done.stdout + done.stderr,
            duration_s=time.monotonic() - started,
        )
        if (outcome.code != 0) != fails:
            raise CommandError(f"pulumi {command} ended with exit code {outcome.code}:\n{outcome.text}")
        return outcome


class Workspace:
    """An isolated engine.

    Attributes:
        folder: everything of it.
        project: the folder with Pulumi.yaml.
        world: the stand-in's folder.
        env: the environment of every command; the project's own verbs can be run in it as well.
        faults: failures to plan (`workspace.fail`).
    """

    def __init__(self, folder: Path, project: Path, *, moto: Moto, plane: ControlPlane | None = None) -> None:
        self.folder = folder
        self.project = project
        self.moto = moto
        self.world = folder / "world"
        self.faults = Faults(self.world)
        self.records = Records(self.world)
        self._stacks: set[str] = set()
        write_launchers(folder / "bin")
        (folder / "state").mkdir(parents=True, exist_ok=True)
        (folder / "home").mkdir(exist_ok=True)
        self.env = self._environment(plane)

    def stack(self, name: str, *, create: bool = True) -> Stack:
        """A stack by name, made if it isn't there."""
        if create and name not in self._stacks:
            self.pulumi("stack", "select", "--create", "--stack", name)
            self._stacks.add(name)
        return Stack(self, name)

    def pulumi(self, *arguments: str) -> str:
        """Runs a command that must succeed; what it prints on stdout."""
        done = self.run_pulumi([*arguments, "--color", "never"])
        if done.returncode != 0:
            raise CommandError(f"pulumi {' '.join(arguments)}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def run_pulumi(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Runs a command, whatever comes of it."""
        return subprocess.run(
            [str(engine("pulumi")), "--non-interactive", *arguments],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
        )

    def edit(self, stack: str, path: str, value: Any) -> None:
        """Changes one key of a stack file (`model.nodes.instance`), as a person would in an editor."""
        file = self.project / "infra" / "stacks" / f"Pulumi.{stack}.yaml"
        document = yaml.safe_load(file.read_text())
        kind, *parts = path.split(".")
        here, last = document["config"], f"coldstart:{kind}"
        for part in parts:
            here, last = here.setdefault(last, {}), part
        here[last] = value
        file.write_text(yaml.safe_dump(document, sort_keys=False))

    def fail(self, operation: str, error: str, **where: Any) -> None:
        """Plans one failure, in place of any planned before (tests/standin/faults.py)."""
        self.faults.plan([Fault(operation=operation, error=error, **where)])

    def journal(self, event: str = "end") -> list[dict[str, Any]]:
        """What the stand-in did, in order: entries of one event (begin, end, failed, throttled)."""
        file = self.world / "operations.jsonl"
        entries = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [entry for entry in entries if entry["event"] == event]

    def aws(self, token: str) -> list[Record]:
        """The resources of a type that exist in the stand-in's world."""
        return self.records.all(token)

    def _environment(self, plane: ControlPlane | None) -> dict[str, str]:
        folders = [self.folder / "bin", TOOLS / "bin", engine("pulumi").parent, "/usr/local/bin", "/usr/bin", "/bin"]
        nothing = str(self.folder / "nothing")
        return {
            "PATH": os.pathsep.join(str(each) for each in folders),
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder),
            "LANG": "C.UTF-8",
            "NO_PROXY": "127.0.0.1,localhost",
            "PULUMI_HOME": str(self.folder / "pulumi-home"),
            "PULUMI_BACKEND_URL": f"file://{self.folder / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "correct horse battery staple",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_DEBUG_COMMANDS": "true",
            "KUBECONFIG": nothing,
            "AWS_CONFIG_FILE": nothing,
            "AWS_SHARED_CREDENTIALS_FILE": nothing,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_ENDPOINT_URL": self.moto.endpoint,
            "COLDSTART_STANDIN_DIR": str(self.world),
            "COLDSTART_STANDIN_MOTO": self.moto.endpoint,
            **({"COLDSTART_STANDIN_KUBECONFIG": str(plane.kubeconfig)} if plane else {}),
        }


def copy_of_this_project(folder: Path) -> Path:
    """A copy of the project that a test may edit; only the virtual environment is the one of the tests."""
    folder.mkdir(parents=True)
    shutil.copy2(ROOT / "Pulumi.yaml", folder)
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room)
    (folder / ".venv").symlink_to(ROOT / ".venv", target_is_directory=True)
    return folder


def small_project(folder: Path, program: str, *, name: str = "small") -> Path:
    """A project of one file, for tests of the engine and the stand-in themselves."""
    folder.mkdir(parents=True)
    runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": str(ROOT / ".venv")}}
    (folder / "Pulumi.yaml").write_text(json.dumps({"name": name, "runtime": runtime}))
    (folder / "__main__.py").write_text(program)
    return folder


def _steps(events: Sequence[Mapping[str, Any]]) -> Iterator[Step]:
    for event in events:
        metadata = event.get("resourcePreEvent", {}).get("metadata")
        if metadata is None:
            continue
        urn = metadata["urn"]
        diff = sorted(metadata.get("detailedDiff") or {}) or metadata.get("diffs") or ()
        yield Step(urn=urn, type=metadata["type"], name=urn.rpartition("::")[2], op=metadata["op"], diff=tuple(diff))


def _diagnostics(events: Sequence[Mapping[str, Any]]) -> Iterator[Diagnostic]:
    for event in events:
        found = event.get("diagnosticEvent")
        if found and not found.get("ephemeral"):
            message = re.sub(r"<\{%[^%]*%\}>", "", found["message"]).strip()
            yield Diagnostic(severity=found["severity"], message=message, urn=found.get("urn", ""))
        violated = event.get("policyEvent")
        if violated:
            text = re.sub(r"<\{%[^%]*%\}>", "", violated["message"]).strip()
            severity = "error" if violated["enforcementLevel"] == "mandatory" else "warning"
            message = f"{violated['policyName']}: {text}"
            yield Diagnostic(severity=severity, message=message, urn=violated.get("resourceUrn", ""))
