"""How long a plan takes on one core: simulated pulls, a budget, the instance search. CPU seconds, medians of five."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from budget.coefficients import coefficients
from budget.image import host_of, layers_of, settings_of
from budget.instances import instance
from budget.models import model
from budget.phases import budget_of
from budget.plan import plan_of
from budget.pull import pull
from budget.scenario import ImageCase
from budget.search import Wish, candidates, deployed

ROUNDS = 5
PULLS = 1_000
FACTS = model("meta-llama/Llama-3.1-8B-Instruct")
WISH = Wish(image=ImageCase(bytes=10_778_000_000))
START = deployed(FACTS, WISH, instance("g6e.4xlarge"), 1)


def cpu_seconds(work: Callable[[], object]) -> float:
    """Median CPU time of one call."""
    taken: list[float] = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        taken.append(time.process_time() - begin)
    return statistics.median(taken)


def thousand_pulls() -> None:
    """One tuned SOCI pull of a 10.8 GB image in 16 MB chunks, a thousand times."""
    factors = coefficients()
    layers, settings, host = layers_of(START.image, factors), settings_of(START), host_of(START, factors)
    for _ in range(PULLS):
        pull(layers, settings, host)


def main() -> None:
    """Prints one line per measurement."""
    candidates(FACTS, WISH)
    for what, work, limit_s in (
        (f"{PULLS} simulated pulls", thousand_pulls, 5.0),
        ("instance search, every type", lambda: candidates(FACTS, WISH), 1.0),
        ("one budget", lambda: budget_of(START), None),
        ("one plan with its levers", lambda: plan_of(START), None),
    ):
        seconds = cpu_seconds(work)
        bound = "" if limit_s is None else f"  (at most {limit_s:g} s)"
        sys.stdout.write(f"{what:32} {seconds * 1000:9.1f} ms{bound}\n")


if __name__ == "__main__":
    main()
