"""From the hub to S3: the client's real requests against a server with the hub's paths, redirects and refusals."""

from __future__ import annotations

import hashlib

import pytest

from budget.problems import BadInput
from scripts.failure import Failure
from scripts.staging.bucket import Bucket
from scripts.staging.hub import open_hub
from scripts.staging.run import Outcome, stage
from scripts.staging.source import read
from tests.aws.hub_server import Content, HubServer
from tests.aws.made_models import model_files, staged_paths

SHARD = 20_000_000
FIRST = "model-00001-of-00002.safetensors"
NAME = "org/name"
TOKEN = "hf_right"  # noqa: S105 - of the hub that the test runs


def staged(hub: HubServer, bucket: Bucket, revision: str = "main", token: str | None = None) -> Outcome:
    source = open_hub(NAME, revision, endpoint=hub.endpoint, token=token)
    return stage(source, bucket, trust_remote_code=False)


@pytest.mark.parametrize("asked", ["main", "v1.0", "feature/x", "commit"])
def test_a_branch_or_tag_is_resolved_and_recorded(hub: HubServer, bucket: Bucket, asked: str) -> None:
    files = model_files()
    commit = hub.add(NAME, files, refs=("main", "v1.0", "feature/x"))
    asked = commit if asked == "commit" else asked
    outcome = staged(hub, bucket, asked)
    assert outcome.model.revision == commit
    assert outcome.manifest.requested_revision == asked
    assert outcome.manifest.source == f"hf:{NAME}@{commit}"


def test_every_byte_arrives_with_the_hubs_own_hash(hub: HubServer, bucket: Bucket) -> None:
    files = model_files(shard_bytes=SHARD)
    hub.add(NAME, files)
    outcome = staged(hub, bucket)
    for file in outcome.manifest.files:
        assert bucket.get(outcome.model.key(file.path)) == files[file.path]
        assert file.sha256 == hashlib.sha256(files[file.path]).hexdigest()
    assert [file.path for file in outcome.manifest.files] == staged_paths(files)
    assert bucket.head(outcome.model.key(FIRST)).sha256 == hashlib.sha256(files[FIRST]).hexdigest()


def test_an_address_is_resolved_once_a_file_not_once_a_part(hub: HubServer, bucket: Bucket) -> None:
    hub.add(NAME, model_files(shard_bytes=SHARD))
    staged(hub, bucket)
    assert hub.state.requests["signed"] == 3  # two shards and tokenizer.json
    assert hub.state.requests["content"] > 6


def test_a_listing_of_many_pages(hub: HubServer, bucket: Bucket) -> None:
    files = model_files(shards=9, shard_bytes=1_000)
    hub.add(NAME, files)
    hub.state.page = 4
    assert len(staged(hub, bucket).manifest.files) == 14


def test_an_address_that_runs_out_is_resolved_again(hub: HubServer) -> None:
    files = model_files(shard_bytes=SHARD)
    hub.add(NAME, files)
    source = open_hub(NAME, "main", endpoint=hub.endpoint)
    file = next(file for file in source.files if file.path == FIRST)
    assert read(source, file, 0, 10) == files[FIRST][:10]
    hub.state.expired = {str(number) for number in range(hub.state.requests["signed"] + 1)}
    assert read(source, file, 100, 50) == files[FIRST][100:150]


def test_a_busy_hub_is_asked_again(hub: HubServer, bucket: Bucket) -> None:
    hub.add(NAME, model_files(shard_bytes=SHARD))
    hub.fail("/api/models/.*/revision/", 503, times=2)
    hub.fail("/tree/", 429)
    hub.fail("/resolve/.*config.json", 500, times=2)
    hub.fail(FIRST, 503, times=4)
    assert staged(hub, bucket).state == "staged"
    assert hub.state.failures == []


def test_a_hub_that_stays_busy_is_said_so(hub: HubServer, bucket: Bucket) -> None:
    hub.add(NAME, model_files())
    hub.fail("/revision/", 503, times=50)
    with pytest.raises(Failure, match="the hub answered 503"):
        staged(hub, bucket)


def test_content_that_is_not_what_the_hub_lists_is_not_kept(hub: HubServer, bucket: Bucket) -> None:
    files = model_files(shard_bytes=SHARD)
    wrong = Content(data=files[FIRST], known_sha256="ab" * 32)
    hub.add(NAME, files | {FIRST: wrong})
    with pytest.raises(Failure, match=f"{FIRST} arrived with hash .* where the source says abababababab"):
        staged(hub, bucket)
    assert bucket.uploads("models/") == [] or all(FIRST not in key for key, _ in bucket.uploads("models/"))
    assert all(FIRST not in entry.key for entry in bucket.listed(""))
    assert list(bucket.listed("manifests/")) == []


def test_a_small_file_that_is_not_what_the_hub_lists(hub: HubServer, bucket: Bucket) -> None:
    class Lying(Content):
        @property
        def git_blob(self) -> str:
            return "cd" * 20

    files = model_files()
    hub.add(NAME, files | {"generation_config.json": Lying(data=b"{}")})
    with pytest.raises(Failure, match=r"generation_config.json arrived with hash"):
        staged(hub, bucket)
    assert list(bucket.listed("manifests/")) == []


def test_a_gated_model_without_a_token(hub: HubServer, bucket: Bucket) -> None:
    hub.add(NAME, model_files(), gated=True, token=TOKEN)
    with pytest.raises(Failure, match=r"is gated. Accept its terms .* set HF_TOKEN"):
        staged(hub, bucket)
    assert list(bucket.listed("")) == []


def test_a_gated_model_with_a_token(hub: HubServer, bucket: Bucket) -> None:
    """The content server refuses any request that carries the token: it must not leave the hub."""
    hub.add(NAME, model_files(shard_bytes=SHARD), gated=True, token=TOKEN)
    assert staged(hub, bucket, token=TOKEN).state == "staged"


def test_a_revision_that_does_not_exist(hub: HubServer, bucket: Bucket) -> None:
    hub.add(NAME, model_files())
    with pytest.raises(BadInput, match="org/name has no revision 'v9'"):
        staged(hub, bucket, "v9")


def test_a_repository_that_does_not_exist_or_is_private(hub: HubServer, bucket: Bucket) -> None:
    with pytest.raises(Failure, match="the hub shows no repository org/name: it does not exist, or it is private"):
        staged(hub, bucket)


def test_a_hub_that_cannot_be_reached() -> None:
    source = "http://127.0.0.1:9"
    with pytest.raises(Failure, match="the hub cannot be reached"):
        open_hub(NAME, "main", endpoint=source)


def test_a_repository_without_safetensors(hub: HubServer, bucket: Bucket) -> None:
    hub.add(NAME, {"config.json": b"{}", "tokenizer.json": b"{}", "pytorch_model.bin": b"x"})
    with pytest.raises(BadInput, match="Convert the checkpoint"):
        staged(hub, bucket)


def test_a_file_that_changes_under_its_commit_is_noticed(hub: HubServer, bucket: Bucket) -> None:
    files = model_files()
    commit = hub.add(NAME, files)
    source = open_hub(NAME, "main", endpoint=hub.endpoint)
    hub.state.repositories[NAME].commits[commit]["config.json"] = Content(data=files["config.json"] + b" ")
    with pytest.raises(Failure, match=r"the hub serves another config.json than it lists"):
        stage(source, bucket, trust_remote_code=False)


def test_the_hub_is_not_asked_when_it_is_switched_off(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(Failure, match="HF_HUB_OFFLINE is set"):
        open_hub(NAME, "main", endpoint=hub.endpoint)
