"""The console command: one way in, three exit codes, and never a traceback for what a person can cause."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from budget.problems import BadInput, Problem
from scripts import cli
from scripts.cli import VERBS, run
from scripts.failure import Failure


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | int | None]:
    """A verb `try` that does what the list says: raise it, or return it."""
    does: list[BaseException | int | None] = [None]

    @click.command()
    def command() -> int | None:
        """Try it."""
        if isinstance(does[0], BaseException):
            raise does[0]
        return does[0]

    module = type(sys)("scripts.try")
    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "scripts.try", module)
    monkeypatch.setitem(VERBS, "try", "Try it")
    return does


def commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A verb, or the verbs below it."""
    if isinstance(command, click.Group):
        for below, inner in command.commands.items():
            yield from commands(f"{name} {below}", inner)
    else:
        yield name, command


def commands_of(verb: str) -> list[tuple[str, click.Command]]:
    return list(commands(verb, importlib.import_module(f"scripts.{verb}").command))


# ---- exit codes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("does", "code", "words"),
    [
        (None, 0, ""),
        (1, 1, ""),
        (2, 2, ""),
        (Failure("the bucket says no"), 1, "failed: the bucket says no\n"),
        (
            BadInput([Problem("a.b", "found c", "Write d."), Problem("e", "missing", "Set it.")]),
            2,
            "error: a.b: found c. Write d.\nerror: e: missing. Set it.\n",
        ),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (KeyboardInterrupt("Nothing was written"), 130, "interrupted. Nothing was written\n"),
        (click.Abort(), 1, "stopped: not confirmed\n"),
    ],
    ids=["success", "a finding", "a code of its own", "failure", "bad input", "interrupt", "with words", "a no"],
)
def test_exit_codes_and_words(
    verb: list[BaseException | int | None],
    capsys: pytest.CaptureFixture[str],
    does: BaseException | int | None,
    code: int,
    words: str,
) -> None:
    verb[0] = does
    assert run(["try"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.strip("\n") == words.strip("\n")


def test_usage_errors_are_bad_input(verb: list[BaseException | int | None], capsys: pytest.CaptureFixture[str]) -> None:
    verb[0] = click.UsageError("name one")
    assert run(["try"]) == 2
    assert "error: name one" in capsys.readouterr().err
    assert run(["try", "--loud"]) == 2
    assert "No such option" in capsys.readouterr().err
    assert run(["try", "extra"]) == 2
    assert "unexpected extra argument" in capsys.readouterr().err


def test_a_fault_of_ours_is_not_hidden(verb: list[BaseException | int | None]) -> None:
    verb[0] = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        run(["try"])


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied", "/out"), OSError(28, "No space left on device", "/out/a")]
)
def test_what_the_disk_refuses_is_a_failure(
    verb: list[BaseException | int | None], capsys: pytest.CaptureFixture[str], error: OSError
) -> None:
    verb[0] = error
    assert run(["try"]) == 1
    assert capsys.readouterr().err.startswith("failed: ")


def test_the_installed_command_ends_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["coldstart", "explain", "model.nothing"])
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    hook = sys.unraisablehook
    try:
        with pytest.raises(SystemExit) as caught:
            cli.main()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook
    assert caught.value.code == 2


# ---- verbs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("rendr", "no verb 'rendr'. Did you mean render"),
        ("explian", "no verb 'explian'. Did you mean explain"),
        ("xyzzy", f"no verb 'xyzzy'. Known: {', '.join(sorted(VERBS))}."),
    ],
)
def test_an_unknown_verb_names_the_close_ones(capsys: pytest.CaptureFixture[str], typed: str, words: str) -> None:
    assert run([typed]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"error: {words}" in err


def test_help_lists_every_verb_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("-h", "--help"):
        assert run([option]) == 0
        text = " ".join(capsys.readouterr().out.split())
        for verb, line in VERBS.items():
            assert verb in text
            assert line in text


def test_without_a_verb_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Verbs:" in capsys.readouterr().err


def test_help_imports_no_verb() -> None:
    """Nobody waits for an SDK to read a page of help."""
    program = (
        "import sys; from scripts.cli import run; run(['--help']); "
        "print([name for name in ('pulumi', 'boto3', 'huggingface_hub', 'infra') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"


def test_the_version_is_the_projects(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert "coldstart, version " in capsys.readouterr().out


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_explains_itself_and_its_options(verb: str) -> None:
    for name, command in commands_of(verb):
        assert command.help, name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {parameter.opts[0]}"


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_speaks_json(verb: str) -> None:
    for name, command in commands_of(verb):
        assert "--json" in {option for parameter in command.params for option in parameter.opts}, name


# ---- json -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "--json"],
        ["explain", "model.nodes.instance", "--json"],
        ["render", "dev-qwen2-5-0-5b", "--json"],
    ],
    ids=" ".join,
)
def test_json_is_one_document_and_nothing_else(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(arguments) == 0
    out, err = capsys.readouterr()
    document, end = json.JSONDecoder().raw_decode(out)
    assert document
    assert out[end:].strip() == ""
    assert err == ""


def test_an_error_leaves_the_document_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", "dev-nothing", "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: dev-nothing: there is no stack file")


# ---- a process ------------------------------------------------------------------------------------------------------

COMMAND = [sys.executable, "-c", "from scripts.cli import main; main()"]
ROOT = Path(cli.__file__).parents[1]


@pytest.mark.parametrize("arguments", [["explain"], ["explain", "--json"], ["render", "dev"], ["--help"]], ids=" ".join)
@pytest.mark.parametrize("stderr", [subprocess.PIPE, subprocess.STDOUT], ids=["stdout", "both"])
def test_a_reader_that_goes_away_ends_it_quietly(arguments: list[str], stderr: int) -> None:
    """`coldstart explain | head -1`, also `2>&1 |`."""
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=stderr, cwd=ROOT) as process:
        assert process.stdout is not None
        process.stdout.close()
        said = process.stderr.read() if process.stderr else b""
        assert (process.wait(60), said) == (141, b"")


def test_no_encoding_ends_it() -> None:
    """A terminal that knows neither bars nor dashes gets question marks."""
    program = "from scripts import cli, verbs; verbs.cli.callback = lambda: print('\u2588 12 s')\n"
    program += "verbs.cli.invoke_without_command = True; verbs.cli.no_args_is_help = False; cli.main()"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, cwd=ROOT, env=environment, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, b"? 12 s\n", b"")


def interrupted_while(body: str, verb: str = "audit") -> tuple[int, str]:
    """Ends a verb whose module holds `body`; it sends itself the signal, so nothing here depends on time."""
    program = (
        "import sys, types, click, signal\n"
        "from scripts import cli, interrupt\n"
        "interrupt.listen()\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'scripts.{verb}':\n"
        "            import importlib.util; return importlib.util.spec_from_loader(name, self)\n"
        "    def create_module(self, spec): return None\n"
        f"    def exec_module(self, module): exec({body!r}, module.__dict__)\n"
        f"sys.meta_path.insert(0, Finder())\nsys.argv[1:] = [{verb!r}]\ncli.main()\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    return found.returncode, found.stderr.strip()


PRESS = "import click, signal, weakref\nfrom budget.problems import bad_input\npress = lambda: signal.raise_signal(2)\n"
VERB = PRESS + "@click.command()\ndef command():\n"


@pytest.mark.parametrize(
    "body",
    [
        PRESS + "press()\n",
        PRESS + "try: press()\nexcept BaseException: raise ImportError('no')\n",
        VERB + "    press()\n",
        VERB + "    try: press()\n    except BaseException: raise bad_input('x', 'y', 'z')\n",
        VERB + "    try: press()\n    except BaseException: raise ZeroDivisionError from None\n",
        VERB + "    try: press()\n    except BaseException: pass\n",
        VERB + "    class X: pass\n    x = X(); ref = weakref.ref(x, lambda _: press()); del x\n"
        "    import threading; threading.Event().wait(60)\n",
    ],
    ids=["import", "import swallows", "verb", "blamed on input", "wrapped", "swallowed", "unraisable"],
)
def test_ctrl_c_is_said_so_wherever_it_comes(body: str) -> None:
    assert interrupted_while(body) == (130, "interrupted")


def test_a_verb_with_nothing_to_clean_up_is_left_at_once() -> None:
    body = VERB + "    try: press()\n    except BaseException: click.echo('went on', err=True)\n"
    assert interrupted_while(body, "render") == (130, "interrupted")


def test_the_entry_point_imports_next_to_nothing() -> None:
    """Else Ctrl-C would come before anything answers it."""
    program = "import sys; import scripts.cli; print([n for n in ('click', 'asyncio', 'budget') if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout == "[]\n"
