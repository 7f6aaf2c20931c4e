"""Which stacks a verb acts on, and where: from stack files, or from states where a file is gone or no longer parses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from budget.problems import BadInput, bad_input
from infra.accounts import APPLICATION
from infra.stack_file import names, read
from scripts.deployed.state import State


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Models of one environment.

    Attributes:
        account, region: where the environment is; the account is checked before anything is changed.
        stacks: model stacks; None is every model on the environment.
    """

    environment: str
    account: str
    region: str
    stacks: frozenset[str] | None

    @property
    def cluster(self) -> str:
        """Name of the environment's cluster in EKS."""
        return f"{APPLICATION}-{self.environment}"

    def includes(self, stack: str) -> bool:
        """Whether a model stack is meant."""
        return self.stacks is None or stack in self.stacks


StateOf = Callable[[str], State]


def target_of(name: str, directory: Path, state_of: StateOf) -> Target:
    """What a stack's name stands for: a model alone, or every model of an environment.

    Args:
        name: as typed.
        directory: folder of the stack files.
        state_of: asks the backend; only needed when the file does not say.

    Raises:
        BadInput: no such stack, or neither file nor state says in which account it is.
    """
    try:
        stack = read(name, directory)
    except BadInput as unreadable:
        return _from_state(name, state_of, unreadable)
    settings = stack.environment
    return Target(
        environment=stack.environment_name,
        account=settings.account,
        region=settings.region,
        stacks=frozenset([name]) if stack.model else None,
    )


def targets_of(chosen: Sequence[str], directory: Path, state_of: StateOf) -> Sequence[Target]:
    """One target for each environment that the names touch."""
    found: dict[str, Target] = {}
    for name in chosen:
        target = target_of(name, directory, state_of)
        earlier = found.get(target.environment)
        if earlier is not None and earlier.stacks is not None and target.stacks is not None:
            target = Target(
                environment=target.environment,
                account=target.account,
                region=target.region,
                stacks=earlier.stacks | target.stacks,
            )
        elif earlier is not None and earlier.stacks is None:
            continue
        found[target.environment] = target
    return list(found.values())


def environments(directory: Path) -> Sequence[str]:
    """Every environment that has a stack file which parses."""
    found: list[str] = []
    for name in names(directory):
        try:
            stack = read(name, directory)
        except BadInput:
            continue
        if stack.model is None:
            found.append(name)
    return found


def _from_state(name: str, state_of: StateOf, unreadable: BadInput) -> Target:
    try:
        state = state_of(name)
    except BadInput:
        raise unreadable from None
    environment, account, region = state.environment, state.account, state.region
    if not (environment and account and region):
        raise bad_input(
            name,
            "neither its stack file nor its state says in which account and region it is",
            f"Mend the stack file: {unreadable}",
        )
    stacks = None if environment == name else frozenset([name])
    return Target(environment=environment, account=account, region=region, stacks=stacks)
