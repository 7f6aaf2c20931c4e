"""Builds the real engines that the tests meet, from published Go modules only: `build.py FOLDER [ENGINE ...]`.

Binaries go to FOLDER/bin, everything in between to FOLDER/src. An engine that is there already, from the same
recipe, is skipped. From nothing the whole set takes about 17 minutes on two cores, with a warm Go build cache one.

A `pulumi` of the user's own, with its Python language host, is used instead of being built (see `installed_pulumi`).
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Every version of every engine. The Pulumi CLI is at least as new as the SDK of requirements.lock.
PULUMI = "3.274.1"
PULUMI_OLDEST = (3, 272)
ETCD = "3.6.16"
KUBERNETES = "1.36.3"
KWOK = "0.8.0"
KEDA = "2.21.0"
KEDA_PROTO_ANNOTATIONS = "v0.1.1-0.20260629224316-835bd8d49cb4"
PROMETHEUS_OPERATOR = "0.85.0"
# The provider's module carries no release tags: this is the commit of release 4.25.0.
KUBERNETES_PROVIDER = "4.25.0"
KUBERNETES_PROVIDER_MODULE = "v4.0.0-20260115033456-f47bc2d6f199"

GO_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-p=2 -buildvcs=false -mod=mod -trimpath", "GOWORK": "off"}
SMALL = "-s -w"  # linker flags: no symbol table, no debug information


class BuildError(Exception):
    """A step of a recipe failed; the text says which, and ends with the end of its log."""


class Bench:
    """Where one engine is built: a Go module of its own, a log, and the folder that the binaries go to."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.bin = folder / "bin"
        self.module = folder / "src" / name
        self.log = folder / "src" / f"{name}.log"
        self.module.mkdir(parents=True, exist_ok=True)
        self.bin.mkdir(parents=True, exist_ok=True)
        self.log.write_text("")

    def go(self, *arguments: str) -> str:
        """Runs `go` in the module; what it prints is logged and returned."""
        with self.log.open("a") as log:
            log.write(f"$ go {' '.join(arguments)}\n")
            log.flush()
            done = subprocess.run(
                ["go", *arguments],
                cwd=self.module,
                env={**os.environ, **GO_ENVIRONMENT},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                check=False,
            )
            log.write(done.stdout)
        if done.returncode != 0:
            tail = "\n".join(self.log.read_text().splitlines()[-20:])
            raise BuildError(f"{self.name}: go {arguments[0]} failed. The end of {self.log}:\n{tail}")
        return done.stdout.strip()

    def start_module(self) -> None:
        """Begins an empty module: `go install` refuses programs whose own module has replace lines."""
        if not (self.module / "go.mod").exists():
            self.go("mod", "init", f"tools.local/{self.name}")

    def build(self, binary: str, package: str, linker_flags: str = SMALL) -> None:
        """Compiles `package` to the binary of that name."""
        self.go("build", "-ldflags", linker_flags, "-o", str(self.bin / binary), package)

    def source_of(self, module: str) -> Path:
        """The folder in which Go keeps the source of a module that this one requires."""
        return Path(self.go("list", "-m", "-f", "{{.Dir}}", module))

    def download(self, module_at_version: str) -> tuple[Path, Path]:
        """Fetches a module without requiring it. Returns its source folder and its go.mod."""
        found = json.loads(self.go("mod", "download", "-json", module_at_version))
        return Path(found["Dir"]), Path(found["GoMod"])


def stamped(package: str, **variables: str) -> str:
    """Linker flags that set a package's version variables."""
    return " ".join([SMALL, *(f"-X {package}.{name}={value}" for name, value in variables.items())])


PULUMI_FLAGS = stamped("github.com/pulumi/pulumi/sdk/v3/go/common/version", Version=f"v{PULUMI}")


def require_pulumi(bench: Bench) -> None:
    """Requires the CLI's module, which brings the SDK that the language host stands on."""
    bench.start_module()
    bench.go("get", f"github.com/pulumi/pulumi/pkg/v3/cmd/pulumi@v{PULUMI}")


def build_pulumi(bench: Bench) -> None:
    """The CLI, and the two scripts of the SDK that run Python programs and dynamic providers."""
    require_pulumi(bench)
    bench.build("pulumi", "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi", PULUMI_FLAGS)
    scripts = bench.source_of("github.com/pulumi/pulumi/sdk/v3") / "python"
    for script in ("cmd/pulumi-language-python-exec", "dist/pulumi-resource-pulumi-python"):
        install(scripts / script, bench.bin / Path(script).name, mode=0o755)


def build_language_host(bench: Bench) -> None:
    """The Python language host, from the Go source beside this file."""
    require_pulumi(bench)
    for source in (HERE / "language_host").glob("*.go"):
        install(source, bench.module / "host" / source.name)
    bench.build("pulumi-language-python", "./host", PULUMI_FLAGS)


def build_kubernetes_provider(bench: Bench) -> None:
    """The Pulumi Kubernetes provider: its schema is a generated file that the module carries in readable form."""
    bench.start_module()
    install(HERE / "kubernetes_provider" / "main.go", bench.module / "main.go")
    module = "github.com/pulumi/pulumi-kubernetes/provider/v4"
    bench.go("get", f"{module}/pkg/provider@{KUBERNETES_PROVIDER_MODULE}")
    source = bench.source_of(module) / "cmd" / "pulumi-resource-kubernetes"
    schema = json.loads((source / "schema.json").read_text()) | {"version": KUBERNETES_PROVIDER}
    (bench.module / "schema-embed.json").write_text(json.dumps(schema, separators=(",", ":")))
    install(source / "terraform-mapping.json", bench.module / "terraform-mapping.json")
    bench.build("pulumi-resource-kubernetes", ".", stamped(f"{module}/pkg/version", Version=KUBERNETES_PROVIDER))


def build_etcd(bench: Bench) -> None:
    """The store behind the API server."""
    bench.start_module()
    bench.go("get", f"go.etcd.io/etcd/server/v3@v{ETCD}")
    bench.build("etcd", "go.etcd.io/etcd/server/v3")


def build_kubernetes(bench: Bench) -> None:
    """API server, controllers and scheduler.

    The module's go.mod points its parts at folders of the source tree. Each part is also a released module, whose
    version is that of Kubernetes with a 0 for the 1.
    """
    source, go_mod = bench.download(f"k8s.io/kubernetes@v{KUBERNETES}")
    _, _, minor_and_patch = KUBERNETES.partition(".")
    text = go_mod.read_text()
    text = re.sub(r"^module .*", f"module tools.local/{bench.name}", text, flags=re.MULTILINE)
    text = re.sub(r"=> \./staging/src/(k8s\.io/\S+)", rf"=> \1 v0.{minor_and_patch}", text)
    (bench.module / "go.mod").write_text(text)
    install(source / "go.sum", bench.module / "go.sum")
    bench.go("mod", "edit", "-require", f"k8s.io/kubernetes@v{KUBERNETES}")
    minor = minor_and_patch.partition(".")[0]
    flags = stamped(
        "k8s.io/component-base/version", gitVersion=f"v{KUBERNETES}", gitMajor=KUBERNETES[0], gitMinor=minor
    )
    for binary in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        bench.build(binary, f"k8s.io/kubernetes/cmd/{binary}", flags)


def build_kwok(bench: Bench) -> None:
    """The simulated kubelet, and the stages by which its nodes and pods become Ready."""
    bench.start_module()
    bench.go("get", f"sigs.k8s.io/kwok/cmd/kwok@v{KWOK}")
    bench.build("kwok", "sigs.k8s.io/kwok/cmd/kwok")
    stages = bench.source_of("sigs.k8s.io/kwok") / "kustomize" / "stage"
    chosen = [
        stages / "node" / "fast" / "node-initialize.yaml",
        stages / "node" / "heartbeat-with-lease" / "node-heartbeat-with-lease.yaml",
        *sorted((stages / "pod" / "fast").glob("pod-*.yaml")),
    ]
    (bench.folder / "kwok-stages.yaml").write_text("\n---\n".join(file.read_text() for file in chosen))


def build_keda(bench: Bench) -> None:
    """KEDA's operator: it scales between none and one; from one upward the API server's own autoscaler takes over."""
    bench.start_module()
    # One of its indirect requirements names a release that was never published; the next one was.
    proto = "github.com/nexus-rpc/nexus-proto-annotations"
    bench.go("mod", "edit", "-replace", f"{proto}@v0.1.0={proto}@{KEDA_PROTO_ANNOTATIONS}")
    bench.go("get", f"github.com/kedacore/keda/v2/cmd/operator@v{KEDA}")
    bench.build("keda-operator", "github.com/kedacore/keda/v2/cmd/operator")
    for definition in (bench.source_of("github.com/kedacore/keda/v2") / "config/crd/bases").glob("*.yaml"):
        install(definition, bench.folder / "keda" / definition.name)


def fetch_definitions(bench: Bench) -> None:
    """CustomResourceDefinitions of objects that stacks render: the operators behind them are not needed."""
    bench.start_module()
    keda, _ = bench.download(f"github.com/kedacore/keda/v2@v{KEDA}")
    prometheus, _ = bench.download(f"github.com/prometheus-operator/prometheus-operator@v{PROMETHEUS_OPERATOR}")
    for definition in (
        keda / "config/crd/bases/keda.sh_scaledobjects.yaml",
        keda / "config/crd/bases/keda.sh_triggerauthentications.yaml",
        prometheus / "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
    ):
        install(definition, bench.folder / "definitions" / definition.name)


def install(source: Path, target: Path, *, mode: int = 0o644) -> None:
    """Copies a file, writable again: Go's module cache is read-only."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One thing to build.

    Attributes:
        recipe: does it, on a bench.
        versions: what the recipe pins; a change means building again.
        makes: files, relative to the folder, that prove that it is there.
        module: name of the scratch module, when engines share one.
    """

    recipe: Callable[[Bench], None]
    versions: tuple[str, ...]
    makes: tuple[str, ...]
    module: str = ""


ENGINES = {
    "pulumi": Engine(
        recipe=build_pulumi,
        versions=(PULUMI,),
        makes=("bin/pulumi", "bin/pulumi-language-python-exec", "bin/pulumi-resource-pulumi-python"),
    ),
    "language-host": Engine(
        recipe=build_language_host, versions=(PULUMI,), makes=("bin/pulumi-language-python",), module="pulumi"
    ),
    "etcd": Engine(recipe=build_etcd, versions=(ETCD,), makes=("bin/etcd",)),
    "kubernetes": Engine(
        recipe=build_kubernetes,
        versions=(KUBERNETES,),
        makes=("bin/kube-apiserver", "bin/kube-controller-manager", "bin/kube-scheduler"),
    ),
    "kwok": Engine(recipe=build_kwok, versions=(KWOK,), makes=("bin/kwok", "kwok-stages.yaml")),
    "keda": Engine(
        recipe=build_keda,
        versions=(KEDA, KEDA_PROTO_ANNOTATIONS),
        makes=("bin/keda-operator", "keda/keda.sh_scaledobjects.yaml"),
    ),
    "definitions": Engine(
        recipe=fetch_definitions,
        versions=(KEDA, PROMETHEUS_OPERATOR),
        makes=("definitions/keda.sh_scaledobjects.yaml", "definitions/monitoring.coreos.com_podmonitors.yaml"),
    ),
    "kubernetes-provider": Engine(
        recipe=build_kubernetes_provider,
        versions=(KUBERNETES_PROVIDER, KUBERNETES_PROVIDER_MODULE),
        makes=("bin/pulumi-resource-kubernetes",),
    ),
}


ON_REQUEST = frozenset({"keda"})
"""Built only when asked for by name: one test needs it, and it takes as long as three others."""


def fingerprint(name: str) -> str:
    """Changes whenever the engine would come out differently: its pins, its flags, the Go source beside this file."""
    digest = hashlib.sha256(json.dumps([ENGINES[name].versions, GO_ENVIRONMENT]).encode())
    for source in sorted((HERE / name.replace("-", "_")).glob("*.go")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def installed_pulumi(search_path: str | None = None) -> Path | None:
    """The user's own `pulumi`, if it is new enough and its Python language host is beside it or on PATH."""
    found = shutil.which("pulumi", path=search_path)
    if found is None:
        return None
    beside = Path(found).resolve().with_name("pulumi-language-python")
    if not beside.exists() and shutil.which("pulumi-language-python", path=search_path) is None:
        return None
    said = subprocess.run([found, "version"], capture_output=True, text=True, check=False).stdout
    numbers = re.match(r"v?(\d+)\.(\d+)", said)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < PULUMI_OLDEST:
        return None
    return Path(found)


def build(name: str, folder: Path, say: Callable[[str], None]) -> None:
    """Builds one engine unless it is there from the same recipe."""
    engine = ENGINES[name]
    stamp = folder / "stamps" / name
    wanted = fingerprint(name)
    there = all((folder / made).exists() for made in engine.makes)
    if there and stamp.exists() and stamp.read_text() == wanted:
        say(f"{name}: there already")
        return
    say(f"{name}: building {' '.join(engine.versions)}")
    started = time.monotonic()
    engine.recipe(Bench(engine.module or name, folder))
    missing = [made for made in engine.makes if not (folder / made).exists()]
    if missing:
        raise BuildError(f"{name}: the recipe ended, but {', '.join(missing)} is not in {folder}")
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(wanted)
    say(f"{name}: built in {time.monotonic() - started:.0f} s")


def wanted_engines(asked: Sequence[str], say: Callable[[str], None]) -> list[str]:
    """What to build: what was asked for, or everything that the user's own installation does not provide."""
    if asked:
        return list(asked)
    own = installed_pulumi()
    if own is not None:
        say(f"pulumi: using {own}")
    there = {"pulumi", "language-host"} if own is not None else set[str]()
    return [name for name in ENGINES if name not in ON_REQUEST | there]


def main(arguments: Sequence[str]) -> int:
    """Builds into a folder; one build at a time per folder."""
    parser = argparse.ArgumentParser(description="Build the engines that the tests meet")
    parser.add_argument("folder", type=Path)
    parser.add_argument("engines", nargs="*", metavar="ENGINE", choices=[[], *ENGINES], default=[])
    options = parser.parse_args(arguments)

    def say(line: str) -> None:
        print(f"tools: {line}", flush=True)  # noqa: T201 - this is a console program

    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.which("go") is None:
        say("Go is not installed; the engines are built from Go modules (https://go.dev/doc/install)")
        return 1
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            for name in wanted_engines(options.engines, say):
                build(name, folder, say)
        except BuildError as error:
            say(str(error))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
