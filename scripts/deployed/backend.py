"""Pulumi's backend and engine, driven through the Automation API from a folder of its own.

The folder holds the project's name and nothing else: neither the program nor a stack file is needed to read a state or
to destroy what is in it, so a stack file that no longer parses stops nobody from tearing down.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from pulumi import automation
from pulumi.automation.events import EngineEvent

from budget.problems import bad_input, did_you_mean
from infra.stack_file import PROJECT, STACKS
from scripts.deployed.state import State, parse
from scripts.failure import Failure

Tell = Callable[[str], None]

_LOCK = re.compile(r"created by \S+@(?P<host>\S+) \(pid (?P<pid>\d+)\)")
"""As the engine words it for a backend of files, S3 included."""

FORGETS_UNREACHABLE = {"PULUMI_K8S_DELETE_UNREACHABLE": "true"}
"""Objects of a cluster that does not answer leave the state. Never in the program: a person behind another address
would forget what still runs. Here, whoever destroys has found out before whether the cluster is gone."""
INSTALL = "Install the Pulumi CLI and sign in to the backend of your stacks (pulumi login)."


class EngineRefused(Failure):
    """The engine stopped.

    Attributes:
        text: what it printed.
        failed: URNs of what could not be deleted.
    """

    def __init__(self, doing: str, text: str, failed: Sequence[str] = ()) -> None:
        self.text, self.failed = text, tuple(failed)
        super().__init__(f"{doing}: {_last_words(text)}")

    @property
    def lock(self) -> Lock | None:
        """Who holds the stack, when that is why the engine refused."""
        found = _LOCK.search(self.text)
        return Lock(host=found["host"], pid=int(found["pid"])) if found else None


@dataclass(frozen=True, slots=True)
class Lock:
    """Whoever holds a stack.

    Attributes:
        host: machine of the command.
        pid: its process there.
    """

    host: str
    pid: int

    @property
    def stale(self) -> bool:
        """It was held from this machine, by a process that no longer runs."""
        return self.host == socket.gethostname() and not Path(f"/proc/{self.pid}").exists()


class Backend:
    """Stacks of this project in the backend that the Pulumi CLI is signed in to.

    Args:
        directory: folder of the stack files; the project's own settings are read from two folders above.
    """

    def __init__(self, directory: Path = STACKS) -> None:
        if shutil.which("pulumi") is None:
            raise bad_input("pulumi", "not on PATH", INSTALL)
        self._folder = tempfile.TemporaryDirectory(prefix="coldstart-")
        path = Path(self._folder.name)
        (path / "Pulumi.yaml").write_text(yaml.safe_dump(_bare_project(directory)), encoding="utf-8")
        self._workspace = automation.LocalWorkspace(work_dir=str(path), env_vars=FORGETS_UNREACHABLE)

    def close(self) -> None:
        """Removes the folder."""
        self._folder.cleanup()

    def names(self) -> Sequence[str]:
        """Every stack of the project.

        Raises:
            EngineRefused: not signed in, or the backend does not answer.
        """
        try:
            return sorted(stack.name.rpartition("/")[2] for stack in self._workspace.list_stacks())
        except automation.CommandError as error:
            raise EngineRefused("listing stacks", str(error)) from error

    def state(self, name: str) -> State:
        """The state of a stack.

        Raises:
            BadInput: there is no such stack.
            EngineRefused: the state can't be read, for instance without its passphrase.
        """
        try:
            exported = self._workspace.export_stack(name)
        except automation.CommandError as error:
            if "no stack named" in str(error):
                known = self.names()
                fix = did_you_mean(name, known) if known else "It holds none of this project: pulumi login to yours."
                raise bad_input(name, "is not a stack in the Pulumi backend", fix) from error
            raise EngineRefused(f"reading the state of {name}", str(error)) from error
        return parse(name, cast("Mapping[str, Any]", exported.deployment or {}))

    def states(self) -> Mapping[str, State]:
        """The state of every stack."""
        return {name: self.state(name) for name in self.names()}

    def destroy(self, name: str, *, targets: Sequence[str] = (), tell: Tell) -> None:
        """Destroys a stack, or some of it with all that depends on it. Whatever is gone already is fine.

        Args:
            name: of the stack.
            targets: URNs; none of them means everything.
            tell: gets each line that the engine prints.

        Raises:
            EngineRefused: something could not be deleted; the rest may be.
        """
        failed: list[str] = []

        def heard(event: EngineEvent) -> None:
            if event.res_op_failed_event:
                failed.append(event.res_op_failed_event.metadata.urn)

        try:
            stack = automation.Stack.select(name, self._workspace)
            stack.destroy(
                target=list(targets) or None,
                target_dependents=bool(targets) or None,
                on_output=tell,
                on_event=heard,
                color="never",
                suppress_outputs=True,
                continue_on_error=True,
            )
        except automation.CommandError as error:
            raise EngineRefused(f"destroying {name}", str(error), failed) from error

    def forget_gone(self, name: str, urns: Sequence[str], *, tell: Tell) -> None:
        """Asks for each of some resources; one that is no longer there leaves the state, without a call to delete it.

        Args:
            name: of the stack.
            urns: of the resources, at least one.
            tell: gets each line that the engine prints.

        Raises:
            EngineRefused: one could not be asked for; others may have left the state.
        """
        try:
            stack = automation.Stack.select(name, self._workspace)
            stack.refresh(target=list(urns), on_output=tell, color="never", suppress_outputs=True)
        except automation.CommandError as error:
            raise EngineRefused(f"refreshing {name}", str(error)) from error

    def unlock(self, name: str) -> None:
        """Takes away the lock of a command that no longer runs."""
        try:
            automation.Stack.select(name, self._workspace).cancel()
        except automation.CommandError as error:
            raise EngineRefused(f"unlocking {name}", str(error)) from error


def _bare_project(directory: Path) -> Mapping[str, object]:
    """Name and backend of the project; no program."""
    project: dict[str, object] = {"name": PROJECT, "runtime": "python"}
    path = directory.resolve().parents[1] / "Pulumi.yaml"
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return project  # the backend is then the one that the CLI is signed in to
    if isinstance(document, dict) and "backend" in document:
        project["backend"] = cast("object", document["backend"])
    return project


def _last_words(text: str) -> str:
    """What the engine said went wrong, out of all that it printed."""
    errors = [line.strip().removeprefix("error: ") for line in text.splitlines() if line.strip().startswith("error:")]
    return "; ".join(dict.fromkeys(errors)) or json.dumps(text[-300:])
