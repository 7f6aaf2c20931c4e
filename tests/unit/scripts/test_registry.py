"""Image registries: what a tag stands for, asked as the OCI distribution API says, and believed only when it fits."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Generator
from pathlib import Path

import httpx2 as httpx
import pytest

from scripts.failure import Failure
from scripts.registry import HttpRegistry, ImagePin, Registry, _ecr_login, parse
from tests.unit.scripts.loopback import Answer, Asked, Images, Served

LAYERS = {"amd64": [4_000_000_000, 60_000_000], "arm64": [3_900_000_000]}
LOGIN = base64.b64encode(b"user:password").decode()
DIGEST = "sha256:" + "a" * 64


@pytest.fixture
def registry() -> Generator[HttpRegistry]:
    with httpx.Client(timeout=5, follow_redirects=True) as client:
        yield HttpRegistry(client)


# ---- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "registry", "repository", "tag"),
    [
        ("vllm/vllm-openai:v0.27.1", "registry-1.docker.io", "vllm/vllm-openai", "v0.27.1"),
        ("vllm/vllm-openai", "registry-1.docker.io", "vllm/vllm-openai", "latest"),
        ("ubuntu:24.04", "registry-1.docker.io", "library/ubuntu", "24.04"),
        ("ubuntu", "registry-1.docker.io", "library/ubuntu", "latest"),
        ("docker.io/vllm/vllm-openai:v1", "registry-1.docker.io", "vllm/vllm-openai", "v1"),
        ("docker.io/ubuntu", "registry-1.docker.io", "library/ubuntu", "latest"),
        ("ghcr.io/a/b/c:1", "ghcr.io", "a/b/c", "1"),
        ("localhost/x", "localhost", "x", "latest"),
        ("localhost:5000/x:y", "localhost:5000", "x", "y"),
        ("127.0.0.1:5000/a/b", "127.0.0.1:5000", "a/b", "latest"),
        (
            "123456789012.dkr.ecr.us-west-2.amazonaws.com/vllm:v1",
            "123456789012.dkr.ecr.us-west-2.amazonaws.com",
            "vllm",
            "v1",
        ),
        (f"vllm/vllm-openai:v1@{DIGEST}", "registry-1.docker.io", "vllm/vllm-openai", "v1"),
    ],
)
def test_a_name_is_read_as_docker_reads_it(image: str, registry: str, repository: str, tag: str) -> None:
    reference = parse(image)
    assert (reference.registry, reference.repository, reference.tag) == (registry, repository, tag)


@pytest.mark.parametrize(
    ("image", "scheme"),
    [("localhost:5000/x", "http"), ("127.0.0.1:5000/x", "http"), ("ghcr.io/x/y", "https"), ("x", "https")],
)
def test_plain_http_is_for_this_machine_alone(image: str, scheme: str) -> None:
    assert parse(image).url.startswith(f"{scheme}://")


# ---- what a tag stands for ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_the_digest_is_the_indexs_and_the_layers_are_the_platforms(
    images: Images, registry: Registry, architecture: str
) -> None:
    digest = images.add_image("v0.27.1", layers=LAYERS)
    assert registry.resolve(images.image(), architecture) == ImagePin(digest=digest, layers=tuple(LAYERS[architecture]))


def test_an_image_of_one_platform_has_no_index(images: Images, registry: Registry) -> None:
    digest = images.add({"layers": [{"digest": DIGEST, "size": 7}, {"digest": DIGEST, "size": 9}]}, "v0.27.1")
    assert registry.resolve(images.image(), "amd64") == ImagePin(digest=digest, layers=(7, 9))


def test_every_kind_of_manifest_is_accepted(images: Images, registry: Registry) -> None:
    """A registry that is not told so converts an index into an old manifest, whose digest is another."""
    images.add_image("v0.27.1", layers=LAYERS)
    registry.resolve(images.image(), "amd64")
    for asked in images.asked:
        accepted = asked.headers["accept"]
        for kind in ("image.index.v1", "manifest.list.v2", "image.manifest.v1", "distribution.manifest.v2"):
            assert kind in accepted


def test_a_registry_that_states_no_digest_is_computed(images: Images, registry: Registry) -> None:
    digest = images.add({"layers": []}, "v0.27.1")
    images.routes["/v2/vllm/manifests/v0.27.1"].headers.clear()
    assert registry.resolve(images.image(), "amd64").digest == digest


# ---- access ---------------------------------------------------------------------------------------------------------


def guard(images: Images, served: Served, *, token: str = "token") -> None:  # noqa: S107 - a word
    """Every manifest only for whoever brings the token that the challenge points to."""
    for path, answer in list(images.routes.items()):

        def guarded(asked: Asked, answer: Answer = answer) -> Answer:
            if asked.headers.get("authorization") == "Bearer open-sesame":
                return answer
            challenge = f'Bearer realm="{served.url}/token",service="reg",scope="repository:vllm:pull"'
            return Answer(status=401, headers={"WWW-Authenticate": challenge})

        images.routes[path] = guarded
    served.routes["/token"] = Answer(content={token: "open-sesame"})


@pytest.mark.parametrize("member", ["token", "access_token"])
def test_an_anonymous_token_is_fetched_where_the_challenge_says(
    images: Images, served: Served, registry: Registry, member: str
) -> None:
    digest = images.add_image("v0.27.1", layers=LAYERS)
    guard(images, served, token=member)
    assert registry.resolve(images.image(), "amd64").digest == digest
    (asked,) = served.asked
    assert asked.query == {"service": "reg", "scope": "repository:vllm:pull"}
    assert "authorization" not in asked.headers
    # One refusal, one token: the second manifest is asked for with it.
    assert [bool(one.headers.get("authorization")) for one in images.asked] == [False, True, True]


def test_a_token_that_is_refused_is_a_refusal(images: Images, served: Served, registry: Registry) -> None:
    images.add_image("v0.27.1", layers=LAYERS)
    guard(images, served)
    served.routes["/token"] = Answer(content={"token": "another"})
    with pytest.raises(Failure, match=r"refuses access\. Is the name right"):
        registry.resolve(images.image(), "amd64")
    assert len(images.asked) == 2  # and not for ever


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_token_nobody_gives_is_a_refusal(images: Images, served: Served, registry: Registry, status: int) -> None:
    images.add_image("v0.27.1", layers=LAYERS)
    guard(images, served)
    served.routes["/token"] = Answer(status=status)
    with pytest.raises(Failure, match="refuses access"):
        registry.resolve(images.image(), "amd64")


def test_a_challenge_that_leads_nowhere_is_a_refusal(images: Images, registry: Registry) -> None:
    images.routes["/v2/vllm/manifests/v0.27.1"] = Answer(status=401)
    with pytest.raises(Failure, match="refuses access"):
        registry.resolve(images.image(), "amd64")


@pytest.mark.parametrize("realm", ["http://registry.example/token", "ftp://127.0.0.2/token", ""])
def test_no_token_is_fetched_in_the_clear(images: Images, registry: Registry, realm: str) -> None:
    images.routes["/v2/vllm/manifests/v0.27.1"] = Answer(
        status=401, headers={"WWW-Authenticate": f'Bearer realm="{realm}"'}
    )
    with pytest.raises(Failure, match=r"not trusted|refuses access"):
        registry.resolve(images.image(), "amd64")


def test_a_token_stays_with_its_registry(images: Images, served: Served, registry: Registry) -> None:
    """A redirect to a store elsewhere must not carry it there."""
    images.add({"layers": [{"digest": DIGEST, "size": 1}]}, "v0.27.1")
    content = images.routes["/v2/vllm/manifests/v0.27.1"].content
    images.routes["/v2/vllm/manifests/v0.27.1"] = Answer(status=307, headers={"Location": f"{served.url}/store"})
    guard(images, served)
    served.routes["/store"] = Answer(content=content)
    assert registry.resolve(images.image(), "amd64").layers == (1,)
    (stored,) = [asked for asked in served.asked if asked.path == "/store"]
    assert "authorization" not in stored.headers


def test_ecr_without_credentials_is_a_failure_in_words() -> None:
    host = "123456789012.dkr.ecr.us-west-2.amazonaws.com"
    with pytest.raises(Failure, match=f"{host}: no access token from ECR: "):
        _ecr_login(host)
    assert _ecr_login("ghcr.io") is None
    assert _ecr_login("123456789012.dkr.ecr.us-west-2.amazonaws.com.example.org") is None


def logged_in(folder: Path, registry: str, auth: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `docker login` leaves in its configuration file."""
    (folder / "config.json").write_text(json.dumps({"auths": {registry: {"auth": auth}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))


def basic(images: Images) -> None:
    answer = images.routes["/v2/vllm/manifests/v0.27.1"]
    assert isinstance(answer, Answer)

    def guarded(asked: Asked) -> Answer:
        known = asked.headers.get("authorization") == f"Basic {LOGIN}"
        return answer if known else Answer(status=401, headers={"WWW-Authenticate": 'Basic realm="reg"'})

    images.routes["/v2/vllm/manifests/v0.27.1"] = guarded


def test_a_login_of_dockers_is_used(
    images: Images, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images.add({"layers": [{"digest": DIGEST, "size": 3}]}, "v0.27.1")
    basic(images)
    logged_in(tmp_path, images.address, LOGIN, monkeypatch)
    assert registry.resolve(images.image(), "amd64").layers == (3,)


@pytest.mark.parametrize("auth", ["", "not base64!", base64.b64encode(b"no colon").decode()])
def test_a_login_that_is_none_is_no_login(
    images: Images, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auth: str
) -> None:
    images.add({"layers": []}, "v0.27.1")
    basic(images)
    logged_in(tmp_path, images.address, auth, monkeypatch)
    with pytest.raises(Failure, match="refuses access"):
        registry.resolve(images.image(), "amd64")


def test_somebody_elses_login_is_not_sent(
    images: Images, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images.add({"layers": []}, "v0.27.1")
    basic(images)
    logged_in(tmp_path, "ghcr.io", LOGIN, monkeypatch)
    with pytest.raises(Failure, match="refuses access"):
        registry.resolve(images.image(), "amd64")
    assert not [asked for asked in images.asked if "authorization" in asked.headers]


# ---- what is not believed -------------------------------------------------------------------------------------------


def test_bytes_that_do_not_match_the_stated_digest(images: Images, registry: Registry) -> None:
    images.add({"layers": []}, "v0.27.1", digest=DIGEST)
    with pytest.raises(Failure, match=f"do not match their digest {DIGEST}: not trusted"):
        registry.resolve(images.image(), "amd64")


def test_a_platforms_manifest_that_was_swapped(images: Images, registry: Registry) -> None:
    images.add_image("v0.27.1", layers={"amd64": [5]})
    other = Answer(content={"layers": [{"digest": DIGEST, "size": 1}]})
    for path in [path for path in images.routes if "sha256:" in path]:
        images.routes[path] = other
    with pytest.raises(Failure, match="not trusted"):
        registry.resolve(images.image(), "amd64")


@pytest.mark.parametrize("content", [b"<html>moved</html>", b"", b"\xff\xfe"])
def test_an_answer_that_is_no_manifest(images: Images, registry: Registry, content: bytes) -> None:
    images.add(content, "v0.27.1")
    with pytest.raises(Failure, match="not JSON"):
        registry.resolve(images.image(), "amd64")


ODD: dict[str, object] = {
    "a list": [1, 2],
    "an index whose entries have no digest": {"manifests": [{"platform": {"os": "linux", "architecture": "amd64"}}]},
    "an index whose entries are text": {"manifests": ["x"]},
    "layers without a size": {"layers": [{"digest": DIGEST}]},
    "a size that is not a number": {"layers": [{"size": "large"}]},
}


@pytest.mark.parametrize("document", ODD.values(), ids=ODD.keys())
def test_json_that_is_no_manifest(images: Images, registry: Registry, document: object) -> None:
    images.add(document, "v0.27.1")
    with pytest.raises(Failure):
        registry.resolve(images.image(), "amd64")


@pytest.mark.parametrize("content", [b"<html>", b"[]"])
def test_a_token_that_is_none(images: Images, served: Served, registry: Registry, content: bytes) -> None:
    images.add_image("v0.27.1", layers=LAYERS)
    guard(images, served)
    served.routes["/token"] = Answer(content=content)
    with pytest.raises(Failure):
        registry.resolve(images.image(), "amd64")


# ---- what is not there ----------------------------------------------------------------------------------------------


def test_no_such_tag(images: Images, registry: Registry) -> None:
    images.add_image("v0.27.1", layers=LAYERS)
    with pytest.raises(Failure, match=rf"{images.address} has no vllm:v9"):
        registry.resolve(images.image("v9"), "amd64")


def test_not_built_for_the_architecture(images: Images, registry: Registry) -> None:
    images.add_image("v0.27.1", layers={"amd64": [1]})
    with pytest.raises(Failure) as caught:
        registry.resolve(images.image(), "arm64")
    assert "is not built for linux/arm64" in str(caught.value)
    assert "linux/amd64" in str(caught.value)


@pytest.mark.parametrize(("status", "words"), [(403, "refuses access"), (500, "500"), (429, "429")])
def test_a_registry_that_will_not(images: Images, registry: Registry, status: int, words: str) -> None:
    images.routes["/v2/vllm/manifests/v0.27.1"] = Answer(
        status=status, content={"errors": [{"code": "TOOMANYREQUESTS", "message": "slow down"}]}
    )
    with pytest.raises(Failure, match=words):
        registry.resolve(images.image(), "amd64")


def test_a_registry_that_is_down(images: Images, registry: Registry) -> None:
    image = images.image()
    images.close()
    with pytest.raises(Failure, match=r"127\.0\.0\.1:\d+ does not answer"):
        registry.resolve(image, "amd64")


def test_a_registry_that_never_answers(images: Images) -> None:
    stop = threading.Event()

    def hang(_: Asked) -> Answer:
        stop.wait(30)
        return Answer()

    images.routes["/v2/vllm/manifests/v0.27.1"] = hang
    with httpx.Client(timeout=0.2) as client, pytest.raises(Failure, match="does not answer"):
        HttpRegistry(client).resolve(images.image(), "amd64")
    stop.set()


def test_a_registry_that_speaks_something_else(images: Images, registry: Registry) -> None:
    images.routes["/v2/vllm/manifests/v0.27.1"] = Answer(
        content=b"cut short", headers={"Content-Length": "1000", "Connection": "close"}
    )
    with pytest.raises(Failure, match="does not answer"):
        registry.resolve(images.image(), "amd64")


def test_failures_name_the_image_and_never_a_token(images: Images, served: Served, registry: Registry) -> None:
    images.add_image("v0.27.1", layers=LAYERS)
    guard(images, served)
    registry.resolve(images.image(), "amd64")
    with pytest.raises(Failure) as caught:
        registry.resolve(images.image("v9"), "amd64")
    assert "vllm:v9" in str(caught.value)
    assert "sesame" not in str(caught.value)
