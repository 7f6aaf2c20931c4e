"""Which starts are meant: a model stack's, or one pod of anybody's; and what its budget is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from budget.cost import Terms
from budget.plan import Plan
from budget.problems import bad_input
from infra.stack_file import Stack, names, read
from scripts.failure import Failure
from scripts.ledger.collect import Collector, in_words
from scripts.ledger.kube_api import ApiError
from scripts.ledger.raw import Object
from scripts.ledger.record import Expected
from serving.placement import MODEL_LABEL


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is measured.

    Attributes:
        namespace, model: where its pods are, and their label; empty for a saved folder.
        pod: one pod alone; empty for the newest ones.
        plan: of the stack; None when no stack was named.
    """

    namespace: str
    model: str
    pod: str
    stack: Stack | None
    plan: Plan | None

    @property
    def selector(self) -> str:
        """Label selector of its pods."""
        return f"{MODEL_LABEL}={self.model}"

    @property
    def budget(self) -> Mapping[str, Expected] | None:
        """Seconds of each phase by the plan; None takes what each pod was told."""
        if self.plan is None:
            return None
        return {
            name: Expected(low_s=phase.low_s, expected_s=phase.expected_s, high_s=phase.high_s)
            for name, phase in self.plan.budget.phases.items()
        }

    @property
    def patience_s(self) -> float:
        """How long a start may take before it is measured as it stands: twice the budget's high, else half an hour."""
        return 1800.0 if self.plan is None else max(120.0, 2 * self.plan.budget.total.high_s)


def target_of(stack_name: str | None, pod: str | None, *, offline: bool, planned: bool = True) -> Target:
    """What a command line means.

    Args:
        stack_name: a model stack.
        pod: name of a pod of that stack, or NAMESPACE/NAME of anybody's.
        offline: a saved folder is measured, which needs neither.
        planned: whether the budget is wanted.

    Raises:
        BadInput: no such stack, an environment, or nothing that says what to measure.
    """
    namespace, _, name = (pod or "").rpartition("/")
    if stack_name is None:
        if not offline and not (namespace and name):
            raise bad_input(
                "STACK",
                "nothing says which start is meant",
                f"Name a model stack ({', '.join(_models())}), --pod NAMESPACE/NAME, or a folder with --from.",
            )
        return Target(namespace=namespace, model="", pod=name, stack=None, plan=None)
    from scripts.plan_stack import model_plan  # noqa: PLC0415 - a saved folder or a stranger's pod needs no plan

    stack = read(stack_name)
    if stack.model is None:
        models = [other for other in _models() if other.startswith(f"{stack_name}-")]
        raise bad_input(
            stack_name, "is an environment: it has no starts", f"Name one of its models: {', '.join(models)}."
        )
    plan = model_plan(stack, stack.model, terms=Terms(), slo_s=None) if planned else None
    return Target(namespace=namespace or stack.slug, model=stack.slug, pod=name, stack=stack, plan=plan)


def _models() -> list[str]:
    return [name for name in names() if read(name).model is not None]


def pods_of(collector: Collector, target: Target) -> list[Object]:
    """The pods that are there, the newest first; the named one alone where one was named.

    Raises:
        Failure: they may not be read, or the API server does not answer.
    """
    try:
        if target.pod:
            return [collector.pod(target.namespace, target.pod)]
        return collector.pods(target.namespace, target.selector)
    except ApiError as error:
        what = f"pod {target.pod}" if target.pod else "the pods"
        raise Failure(f"{what} in namespace {target.namespace}: {in_words(error)}") from error
