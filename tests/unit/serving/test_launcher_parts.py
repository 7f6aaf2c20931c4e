"""Small parts: the shared console, the warm-up's rules, the answer's verdicts, the bundle, the machine."""

from __future__ import annotations

import ast
import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.launcher import bundle
from serving.launcher.answer import Completion, differs, insane
from serving.launcher.config import KnownAnswer, WarmupPlan
from serving.launcher.console import Console
from serving.launcher.machine import cpu_features, gpu_models, visible_gpus
from serving.launcher.warmup import is_steady, prompt, warmup_steps


class Pipes:
    """Two pipes in the place of a container's streams."""

    def __init__(self) -> None:
        self.read_fds, self.write_fds = zip(*(os.pipe() for _ in range(2)), strict=True)
        self.console = Console(*self.write_fds)

    def out(self) -> bytes:
        return os.read(self.read_fds[0], 65536)

    def err(self) -> bytes:
        return os.read(self.read_fds[1], 65536)

    def close(self) -> None:
        for fd in (*self.read_fds, *self.write_fds):
            os.close(fd)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    made.close()


def test_own_line_at_the_start_of_a_line(pipes: Pipes) -> None:
    pipes.console.pass_through(pipes.write_fds[0], b"engine\n")
    pipes.console.say("x", n=1)
    assert pipes.out() == b'engine\n{"coldstart": "x", "n": 1}\n'


def test_own_line_goes_to_the_stream_that_is_free(pipes: Pipes) -> None:
    pipes.console.pass_through(pipes.write_fds[0], b"half")
    pipes.console.say("x")
    assert pipes.err() == b'{"coldstart": "x"}\n'


def test_own_line_waits_while_both_lines_are_open(pipes: Pipes) -> None:
    for fd in pipes.write_fds:
        pipes.console.pass_through(fd, b"half")
    pipes.console.say("x")
    pipes.console.pass_through(pipes.write_fds[0], b" and half\n")
    assert pipes.out() == b'half and half\n{"coldstart": "x"}\n'
    assert pipes.err() == b"half"


def test_what_still_waits_is_said_at_the_end(pipes: Pipes) -> None:
    for fd in pipes.write_fds:
        pipes.console.pass_through(fd, b"half")
    pipes.console.say("x")
    pipes.console.close()
    assert pipes.out() == b'half\n{"coldstart": "x"}\n'


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.binary(min_size=1, max_size=20).filter(lambda b: b"{" not in b))))
def test_the_engines_bytes_are_never_changed(pieces: list[tuple[int, bytes]]) -> None:
    """Whatever the order: taking the launcher's lines away leaves exactly what the engine wrote."""
    pipes = Pipes()
    try:
        written = [b"", b""]
        for where, piece in pieces:
            if where == 2:
                pipes.console.say("x")
            else:
                pipes.console.pass_through(pipes.write_fds[where], piece)
                written[where] += piece
        os.write(pipes.write_fds[0], b"!")
        os.write(pipes.write_fds[1], b"!")
        own = b'{"coldstart": "x"}\n'
        assert pipes.out().replace(own, b"") == written[0] + b"!"
        assert pipes.err().replace(own, b"") == written[1] + b"!"
    finally:
        pipes.close()


def test_nobody_reads(pipes: Pipes) -> None:
    """A closed stream must not stop the engine."""
    os.close(pipes.read_fds[0])
    pipes.console.pass_through(pipes.write_fds[0], b"lost\n")
    pipes.console.pass_through(pipes.write_fds[1], b"kept\n")
    assert pipes.err() == b"kept\n"
    pipes.read_fds = (os.dup(pipes.read_fds[1]), pipes.read_fds[1])


PLAN = WarmupPlan(
    prompt_tokens=(16, 4096),
    batch_sizes=(4, 1, 4),
    output_tokens=8,
    completion=True,
    chat=True,
    stream=True,
    window=3,
    tolerance=0.2,
    cap_s=10.0,
)


def test_plan_becomes_requests() -> None:
    steps = warmup_steps(PLAN, list(range(50)), 100)
    assert [step.name for step in steps] == [
        "completion of 16 tokens",
        "completion of 92 tokens",
        "batch of 1",
        "batch of 4",
        "streamed completion",
        "log-probabilities",
        "chat",
        "streamed chat",
    ]
    batch = steps[3].body["prompt"]
    assert isinstance(batch, list)
    assert [len(member) for member in batch] == [16] * 4
    assert len({tuple(member) for member in batch}) == 4


@given(st.integers(1, 300), st.integers(0, 100), st.integers(1, 60))
def test_prompts_have_their_length_and_known_tokens(length: int, turn: int, size: int) -> None:
    tokens = list(range(1000, 1000 + size))
    made = prompt(tokens, length, turn)
    assert len(made) == length
    assert set(made) <= set(tokens)


@pytest.mark.parametrize(
    ("latencies", "steady"),
    [
        ([], False),
        ([1.0, 1.0], False),
        ([1.0, 1.0, 1.0], True),
        ([9.0, 1.0, 1.1, 1.2], True),
        ([9.0, 5.0, 3.0, 1.0], False),
        ([1.0, 1.3, 1.3, 1.3], False),
        ([1.0, 1.0, 1.0, 9.0], True),
    ],
)
def test_steady(latencies: list[float], steady: bool) -> None:  # noqa: FBT001 - a table
    assert is_steady(latencies, 3, 0.2) is steady


@given(st.lists(st.floats(0.001, 10), min_size=1), st.integers(2, 6), st.floats(0, 2))
def test_equal_latencies_are_steady_and_steadiness_needs_a_window(
    latencies: list[float], window: int, tolerance: float
) -> None:
    assert is_steady([1.0] * window, window, tolerance)
    assert not is_steady(latencies[: window - 1], window, tolerance)


def completion(ids: tuple[int, ...] = (1, 2, 3), **changes: tuple[float, ...]) -> Completion:
    values = {"logprobs": (-0.1,) * len(ids), "margins": (1.0,) * len(ids)} | changes
    return Completion(token_ids=ids, tokens=tuple(f"t{i}" for i in ids), text="", **values)


def known(ids: tuple[int, ...], firm: int, text: str = "") -> KnownAnswer:
    return KnownAnswer(prompt="p", token_ids=ids, text=text, firm_tokens=firm)


@pytest.mark.parametrize(
    ("ids", "want", "firm", "reason"),
    [
        ((1, 2, 3), (1, 2, 3), 3, ""),
        ((1, 2, 9), (1, 2, 3), 2, ""),
        ((1, 9, 3), (1, 2, 3), 2, "token 2 of 2 is 9 instead of 2"),
        ((1,), (1, 2, 3), 2, "token 2 of 2 is missing instead of 2"),
    ],
)
def test_only_firm_tokens_are_compared(ids: tuple[int, ...], want: tuple[int, ...], firm: int, reason: str) -> None:
    assert differs(completion(ids), known(want, firm)) == reason


def test_engine_without_token_ids_is_compared_by_text() -> None:
    answer = Completion(token_ids=(), tokens=("t1", "t2", "x"), logprobs=(-1.0,), margins=(), text="t1t2x")
    assert differs(answer, known((1, 2, 3), 2, "t1t2t3")) == ""
    assert "begins 't1t2x'" in differs(answer, known((1, 2, 3), 3, "t1t2t3"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (completion(), ""),
        (completion(()), "the answer is empty"),
        (completion((4, 4, 4)), "one token is repeated 3 times"),
        (completion((4,)), ""),
        (completion(logprobs=(-0.1, math.nan, -0.2)), "log-probabilities are missing or not finite"),
        (completion(logprobs=(-0.1, -math.inf, -0.2)), "log-probabilities are missing or not finite"),
        (completion(logprobs=()), "log-probabilities are missing or not finite"),
    ],
)
def test_sanity(answer: Completion, reason: str) -> None:
    assert insane(answer) == reason


@pytest.mark.parametrize(
    ("margins", "firm"), [((1.0, 1.0, 1.0), 3), ((1.0, 0.4, 1.0), 1), ((0.1, 1.0, 1.0), 1), ((), 1)]
)
def test_tokens_are_firm_until_the_first_near_tie(margins: tuple[float, ...], firm: int) -> None:
    assert completion(margins=margins).firm_tokens() == firm


def test_a_reply_is_read() -> None:
    document = {
        "choices": [
            {
                "text": "ab",
                "token_ids": [1, 2],
                "logprobs": {
                    "tokens": ["a", "b"],
                    "token_logprobs": [-0.5, None],
                    "top_logprobs": [{"a": -0.5, "c": -2.0}, {"b": -0.1}],
                },
            }
        ]
    }
    read = Completion.from_reply(document)
    assert read.token_ids == (1, 2)
    assert read.margins == (1.5, 0.0)
    assert math.isnan(read.logprobs[1])
    assert Completion.from_reply({}).token_ids == ()


def test_the_bundle_is_the_same_every_time_and_one_module() -> None:
    source = bundle.source()
    assert source == bundle.source()
    tree = ast.parse(source)
    assert (ast.get_docstring(tree) or "").startswith("The pod's entry point")
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert "serving" not in imported
    third_party = {name for name in imported if name not in __import__("sys").stdlib_module_names}
    assert third_party == {"prometheus_client", "boto3", "botocore", "urllib3"}


def test_two_definitions_of_one_name_are_refused() -> None:
    modules = {"a": ast.parse("x = 1"), "b": ast.parse("def x(): pass")}
    with pytest.raises(ValueError, match="x is defined in both a and b"):
        bundle._check_names(modules)


def test_gpus_are_counted_by_their_device_nodes(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps"):
        (tmp_path / name).touch()
    assert visible_gpus(tmp_path) == 2


def test_gpu_models_as_the_driver_says_them(tmp_path: Path) -> None:
    for index in range(2):
        (tmp_path / f"0000:0{index}:00.0").mkdir()
        (tmp_path / f"0000:0{index}:00.0" / "information").write_text("Model: \t\t NVIDIA L40S\nIRQ:   1\n")
    assert gpu_models(tmp_path) == ["NVIDIA L40S", "NVIDIA L40S"]
    assert gpu_models(tmp_path / "none") == []


def test_cpu_features_are_stable() -> None:
    assert len(cpu_features()) == 16
    assert cpu_features() == cpu_features()
