"""Parses engine command lines with vLLM's own parser: no GPU, nothing started.

    python parse_commands.py < COMMANDS
    python parse_commands.py --flags

COMMANDS is a JSON list of commands, each a list of strings that begins with `vllm serve`. One JSON list on standard
output: for each command what was understood, or why it was refused; with --flags every option there is.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import contextlib
import io
import json
import sys

from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser

SHOWN = (
    "model_tag",
    "port",
    "load_format",
    "max_model_len",
    "served_model_name",
    "tensor_parallel_size",
    "shutdown_timeout",
    "enforce_eager",
)


def main(arguments: list[str]) -> None:
    """Reads, parses, prints."""
    parser = FlexibleArgumentParser()
    serve = ServeSubcommand()
    serving = serve.subparser_init(parser.add_subparsers(dest="subparser"))
    if arguments == ["--flags"]:
        json.dump(sorted({option for action in serving._actions for option in action.option_strings}), sys.stdout)  # noqa: SLF001 - argparse lists them nowhere else
        return
    results = []
    for command in json.load(sys.stdin):
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                # The parser rewrites a model tag that it finds in the process's own arguments.
                sys.argv = list(command)
                parsed = parser.parse_args(command[1:])
                serve.validate(parsed)
        except (SystemExit, ValueError) as error:
            results.append({"refused": said.getvalue().strip().splitlines()[-1:] or str(error)})
        else:
            results.append({name: getattr(parsed, name) for name in SHOWN})
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
