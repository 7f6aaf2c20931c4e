"""The build of the engines: it skips what is there, says what failed, and leaves a user's own Pulumi alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.toolchain import build


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts a `go` on PATH that writes down its calls and makes empty binaries."""
    folder = tmp_path / "bin"
    folder.mkdir()
    go = folder / "go"
    go.write_text(
        '#!/bin/sh\necho "$@" >> "$CALLS"\n'
        '[ "$1" != build ] || [ -z "$BROKEN" ] || { echo "undefined: broken" >&2; exit 1; }\n'
        '[ "$1" != build ] || { while [ "$1" != -o ]; do shift; done; : > "$2"; }\n'
    )
    go.chmod(0o755)
    log = tmp_path / "calls"
    monkeypatch.setenv("CALLS", str(log))
    monkeypatch.setenv("BROKEN", "")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return log


def test_an_engine_is_built_once(calls: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "tools"
    assert build.main([str(folder), "etcd"]) == 0
    assert (folder / "bin" / "etcd").exists()
    first = calls.read_text()
    assert f"get go.etcd.io/etcd/server/v3@v{build.ETCD}" in first
    assert build.main([str(folder), "etcd"]) == 0
    assert calls.read_text() == first
    assert capsys.readouterr().out.splitlines()[-1] == "tools: etcd: there already"


def test_another_version_is_built_again(calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tools"
    build.main([str(folder), "etcd"])
    newer = build.Engine(recipe=build.build_etcd, versions=("9.9.9",), makes=("bin/etcd",))
    monkeypatch.setitem(build.ENGINES, "etcd", newer)
    build.main([str(folder), "etcd"])
    assert calls.read_text().count("build -ldflags") == 2


def test_a_failing_step_shows_the_end_of_its_log(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BROKEN", "yes")
    assert build.main([str(tmp_path / "tools"), "etcd"]) == 1
    said = capsys.readouterr().out
    assert "tools: etcd: go build failed. The end of" in said
    assert said.splitlines()[-1] == "undefined: broken"
    assert not (tmp_path / "tools" / "stamps" / "etcd").exists()
    assert calls.exists()


def test_without_go_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.main([str(tmp_path / "tools"), "etcd"]) == 1
    assert "Go is not installed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("version", "with_host", "used"),
    [
        ("v3.274.1", True, True),
        ("v3.272.0", True, True),
        ("v4.0.1", True, True),
        ("v3.271.9", True, False),
        ("v3.300.0", False, False),
        ("nonsense", True, False),
    ],
)
def test_a_users_pulumi_is_used_when_it_can_be(tmp_path: Path, *, version: str, with_host: bool, used: bool) -> None:
    pulumi = tmp_path / "pulumi"
    pulumi.write_text(f"#!/bin/sh\necho {version}\n")
    pulumi.chmod(0o755)
    if with_host:
        (tmp_path / "pulumi-language-python").touch(mode=0o755)
    assert build.installed_pulumi(str(tmp_path)) == (pulumi if used else None)


def test_a_users_pulumi_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "installed_pulumi", lambda: tmp_path / "pulumi")
    said: list[str] = []
    wanted = build.wanted_engines([], said.append)
    assert set(build.ENGINES) - set(wanted) == {"pulumi", "language-host"} | build.ON_REQUEST
    assert said == [f"pulumi: using {tmp_path / 'pulumi'}"]
    assert build.wanted_engines(["pulumi"], said.append) == ["pulumi"]
