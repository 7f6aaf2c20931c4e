"""`python -m scripts.staging`: staging inside the cluster, where there is nothing but the engine image's Python.

Progress goes to standard error as lines that `coldstart stage --in-cluster` reads, the final document to standard
output. Exit codes: 0 staged, 1 refused by the world, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from budget.problems import BadInput
from scripts.failure import Failure
from scripts.staging.bucket import connect
from scripts.staging.destination import Origin, bucket_of
from scripts.staging.progress import lines
from scripts.staging.run import Outcome, stage


def main(arguments: Sequence[str]) -> int:
    """Stages one model; returns the exit code."""
    options = _options(arguments)
    # A pod is told to stop by SIGTERM: threads are joined and what was sent is kept.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        outcome = _stage(options)
    except BadInput as error:
        for problem in error.problems:
            sys.stderr.write(f"error: {problem}\n")
        return 2
    except Failure as error:
        sys.stderr.write(f"failed: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("failed: interrupted; run it again and it goes on from there\n")
        return 1
    sys.stdout.write(json.dumps(outcome.document()) + "\n")
    return 0


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.staging", description="Stage one model revision.")
    parser.add_argument("--source", required=True, help="hf:ORG/NAME@REVISION, or a folder")
    parser.add_argument("--name", help="ORG/NAME of a folder")
    parser.add_argument("--to", required=True, help="s3://BUCKET/models")
    parser.add_argument("--region", help="region the bucket must be in")
    parser.add_argument("--trust-remote-code", action="store_true", help="stage the model's Python files too")
    return parser.parse_args(arguments)


def _stage(options: argparse.Namespace) -> Outcome:
    origin = Origin(source=options.source, name=options.name, trust_remote_code=options.trust_remote_code)
    origin.check()
    bucket = connect(bucket_of(options.to), region=options.region)
    source = origin.open()
    with ExitStack() as stack:
        return stage(
            source,
            bucket,
            trust_remote_code=options.trust_remote_code,
            watch=lambda meter: stack.enter_context(lines(meter, machine=True)),
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
