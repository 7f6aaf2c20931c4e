"""The Pulumi program of both kinds of stack: settings in, resources out."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The engine runs this file with its own folder first on the path; the rooms lie one above it.
sys.path[0] = str(HERE.parent)

import pulumi

from budget.counted import counted
from budget.problems import BadInput
from infra.program import run

try:
    run(HERE / "stacks")
except BadInput as error:
    # A run error is printed as it is, without a traceback.
    found = counted(len(error.problems), "problem")
    raise pulumi.RunError(f"{found} in stack {pulumi.get_stack()}:\n{error}") from None
