"""Progress: what is counted, and the lines it becomes."""

from __future__ import annotations

import io

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.staging.meter import Meter, Snapshot
from scripts.staging.progress import encode, lines, parse
from scripts.staging.selection import Choice, Selection
from scripts.staging.source import SourceFile


def meter(*sizes: int) -> tuple[Meter, list[float]]:
    files = [SourceFile(path=str(number), bytes=size) for number, size in enumerate(sizes)]
    now = [0.0]
    selection = Selection(choices=tuple(Choice(file=file, kept=True, reason="x") for file in files))
    return Meter(selection, clock=lambda: now[0]), now


def test_bytes_that_count_and_bytes_that_were_sent() -> None:
    counted, now = meter(100, 50)
    counted.advance("0", 60, sent=True)
    counted.advance("0", 40, sent=False)
    counted.finish("0", 100)
    now[0] = 2.0
    snapshot = counted.snapshot()
    assert (snapshot.done_bytes, snapshot.sent_bytes, snapshot.total_bytes) == (100, 60, 150)
    assert (snapshot.done_files, snapshot.total_files) == (1, 2)
    assert (snapshot.rate_bytes_s, snapshot.left_s) == (50.0, 1.0)


def test_a_file_that_begins_again_counts_once() -> None:
    counted, _ = meter(100)
    counted.advance("0", 90, sent=True)
    counted.restart("0")
    counted.advance("0", 10, sent=True)
    assert counted.snapshot().done_bytes == 10
    assert counted.snapshot().sent_bytes == 100


def test_a_line_says_share_amount_rate_files_and_time() -> None:
    snapshot = Snapshot(
        total_bytes=4_000_000_000,
        done_bytes=1_000_000_000,
        sent_bytes=1_000_000_000,
        total_files=12,
        done_files=3,
        elapsed_s=10.0,
    )
    assert snapshot.line() == " 25%  1.00 of 4.00 GB  100 MB/s  3 of 12 files, 30 s left"


def test_nothing_is_known_before_the_first_byte() -> None:
    assert meter(5)[0].snapshot().left_s is None


counts = st.integers(0, 10**13)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.builds(
        Snapshot,
        total_bytes=counts,
        done_bytes=counts,
        sent_bytes=counts,
        total_files=counts,
        done_files=counts,
        elapsed_s=st.floats(0, 1e6),
    )
)
def test_what_a_pod_writes_is_what_is_read_here(snapshot: Snapshot) -> None:
    assert parse(encode(snapshot)) == snapshot


def test_other_lines_are_no_progress() -> None:
    assert parse("failed: access denied") is None
    assert parse('coldstart-progress {"total_bytes": 1}') is None
    assert parse("coldstart-progress {") is None


def test_the_last_line_comes_at_the_end() -> None:
    counted, _ = meter(10)
    out = io.StringIO()
    with lines(counted, to=out, every_s=1000):
        counted.finish("0", 10)
    assert out.getvalue().startswith("100%  0.00 of 0.00 GB")
    assert out.getvalue().count("\n") == 1


def test_lines_come_while_it_runs() -> None:
    counted, _ = meter(10)
    out = io.StringIO()
    with lines(counted, to=out, every_s=0.001, machine=True):
        while out.getvalue().count("\n") < 2:
            pass
    assert all(parse(line) for line in out.getvalue().splitlines())
