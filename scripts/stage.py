"""`coldstart stage`: one pinned model revision into the in-region bucket, verified, all or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import click

from budget.problems import bad_input
from budget.staged import MODELS, Manifest, StagedModel, parse_reference
from infra.accounts import bucket_name, partition_of
from infra.stack_file import STACKS, Stack, names, read
from infra.weight_access import EVERY_MODEL, stager_policy
from scripts import stage_screen
from scripts.failure import Failure
from scripts.staging import inventory, verify
from scripts.staging.bucket import Bucket, connect
from scripts.staging.destination import Origin, bucket_of
from scripts.staging.meter import Meter
from scripts.staging.refusal import told
from scripts.staging.run import Outcome, read_manifest, stage
from scripts.staging.selection import Choice, Selection
from scripts.staging.source import SourceFile


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for on the command line, made whole from the stack file where one is named.

    Attributes:
        stack: the stack that was named; None in the form with `--to`.
        reference: a staged model that was named instead.
        origin: what to stage; None where only the bucket is looked at.
    """

    stack: Stack | None
    reference: StagedModel | None
    origin: Origin | None
    bucket: str
    region: str | None

    def open_bucket(self) -> Bucket:
        """The bucket, in the right region."""
        with told(self.bucket):  # a profile that does not exist is noticed before any request
            return connect(self.bucket, region=self.region)


def request(
    target: str | None,
    *,
    source: str | None = None,
    name: str | None = None,
    to: str | None = None,
    region: str | None = None,
    trust_remote_code: bool = False,
) -> Request:
    """Understands the command line.

    Raises:
        BadInput: both forms at once, or neither; a stack file that is wrong.
    """
    reference = parse_reference(target, where="target") if target and "@" in target else None
    if target and reference is None:
        if source or to:
            fix = "Name a stack, or say --source and --to, not both."
            found = f"cannot be combined with the stack {target}, which says it already"
            raise bad_input("--source" if source else "--to", found, fix)
        return _of_stack(read(target, STACKS), region, trust_remote_code=trust_remote_code)
    if not to:
        raise bad_input("--to", "no bucket is named", f"Name a stack, or say --to s3://BUCKET/{MODELS}.")
    origin = Origin(source=source, name=name, trust_remote_code=trust_remote_code) if source else None
    if origin is not None:
        origin.check()
    return Request(stack=None, reference=reference, origin=origin, bucket=bucket_of(to), region=region)


def _of_stack(stack: Stack, region: str | None, *, trust_remote_code: bool) -> Request:
    origin = None
    if stack.model is not None:
        origin = Origin(
            source=f"hf:{stack.model.source}@{stack.model.revision or 'main'}",
            trust_remote_code=trust_remote_code or stack.model.weights.trust_remote_code,
        )
    return Request(
        stack=stack,
        reference=None,
        origin=origin,
        bucket=bucket_name(stack),
        region=region or stack.environment.region,
    )


# ---- the verbs ----------------------------------------------------------------------------------------------------


def stage_here(asked: Request) -> Outcome:
    """Stages from this machine.

    Raises:
        BadInput, Failure: see `scripts.staging.run.stage`.
    """
    origin = _origin(asked)
    bucket = asked.open_bucket()
    source = origin.open()
    click.echo(f"{source.identity} → s3://{bucket.name}/{MODELS}/{source.name}/{source.revision}/", err=True)
    if source.requested_revision != source.revision:
        click.echo(f"{source.requested_revision} is commit {source.revision}", err=True)
    try:
        with ExitStack() as stack:
            return stage(
                source,
                bucket,
                trust_remote_code=origin.trust_remote_code,
                watch=lambda meter: stack.enter_context(stage_screen.shown(meter, source.name)),
            )
    except KeyboardInterrupt as interrupt:
        words = "Nothing was published; run it again and it goes on from there"
        raise KeyboardInterrupt(words) from interrupt


def verified(asked: Request, *, quick: bool) -> verify.Verdict:
    """Verifies one staged model.

    Raises:
        Failure: it is not staged.
    """
    bucket = asked.open_bucket()
    model = _model(asked)
    manifest = read_manifest(bucket, model)
    if manifest is None:
        raise Failure(f"{model} is not staged in s3://{bucket.name}: there is no {model.manifest_key}")
    if quick:
        return verify.quick(bucket, manifest)
    meter = Meter(_everything(manifest))
    with stage_screen.shown(meter, f"verifying {model.name}"):
        return verify.full(bucket, manifest, meter=meter)


def prunable(asked: Request, bucket: Bucket) -> Sequence[inventory.Entry]:
    """What `--prune` removes: the model that was named, else whatever no stack file names."""
    entries = inventory.inventory(bucket)
    if asked.reference is not None:
        return [entry for entry in entries if entry.model == asked.reference]
    if asked.stack is None:
        fix = "Name the environment, whose stack files say what is in use, or the model: ORG/NAME@REVISION."
        raise bad_input("--prune", "it is not known which models are in use", fix)
    return list(inventory.unused(entries, in_use=in_use(asked.stack.environment_name)))


def in_use(environment: str) -> frozenset[StagedModel]:
    """Models that the stack files of an environment name.

    Raises:
        BadInput: one of them is wrong, or is not pinned: it is not known what it uses.
    """
    used: set[StagedModel] = set()
    for name in names(STACKS):
        stack = read(name, STACKS)
        if stack.model is None or stack.environment_name != environment:
            continue
        if stack.model.revision is None:
            raise bad_input(f"{name}: model.revision", "is not pinned", f"Run `coldstart pin {name}` before pruning.")
        used.add(StagedModel(name=stack.model.source, revision=stack.model.revision))
    return frozenset(used)


def _origin(asked: Request) -> Origin:
    if asked.origin is None:
        found = "an environment has no model to stage" if asked.stack else "no source is named"
        raise bad_input("stage", found, "Name a model stack, or say --source hf:ORG/NAME@REVISION or a folder.")
    return asked.origin


def _model(asked: Request) -> StagedModel:
    if asked.reference is not None:
        return asked.reference
    model = asked.stack.model if asked.stack else None
    if model is None or model.revision is None:
        fix = "Name a model stack that is pinned, or ORG/NAME@REVISION and --to."
        raise bad_input("--verify", "it is not known which model", fix)
    return StagedModel(name=model.source, revision=model.revision)


def _everything(manifest: Manifest) -> Selection:
    files = [SourceFile(path=file.path, bytes=file.bytes) for file in manifest.files]
    return Selection(choices=tuple(Choice(file=file, kept=True, reason="staged") for file in files))


# ---- what is said -------------------------------------------------------------------------------------------------


def _say_outcome(outcome: Outcome, stack: Stack | None) -> None:
    manifest = outcome.manifest
    click.echo(f"{outcome.state}: {manifest.model.uri(outcome.bucket)}")
    click.echo(
        f"  {len(manifest.files)} files, {manifest.total_bytes / 1e9:.2f} GB, manifest {manifest.model.manifest_key}"
    )
    if manifest.facts:
        facts = manifest.facts
        dtypes = ", ".join(sorted(facts.bytes_by_dtype))
        click.echo(f"  {facts.parameters / 1e9:.2f} B parameters ({dtypes}), {facts.layers} layers")
    if outcome.state == "staged" and outcome.elapsed_s > 0:
        rate = manifest.total_bytes / outcome.elapsed_s / 1e6
        click.echo(f"  {outcome.sent_bytes / 1e9:.2f} GB sent in {outcome.elapsed_s:.0f} s ({rate:.0f} MB/s)")
    for choice in outcome.dropped:
        click.echo(f"  left out: {choice.file.path} ({choice.reason})")
    if stack and stack.model and stack.model.revision is None:
        click.echo(f"{stack.name} is not pinned: `coldstart pin {stack.name}` before `pulumi up`", err=True)


def _say_verdict(verdict: verify.Verdict) -> None:
    manifest = verdict.manifest
    if not verdict.findings:
        held = f"{len(manifest.files)} files, {manifest.total_bytes / 1e9:.2f} GB"
        click.echo(f"intact ({verdict.depth}): {manifest.model}, {held}")
    for finding in verdict.findings:
        click.echo(f"{manifest.model.key(finding.key)} {finding.what}")
    if verdict.findings:
        click.echo("Remove it (`--prune ORG/NAME@REVISION --yes`) and stage it again", err=True)


def _say_entries(entries: Sequence[inventory.Entry]) -> None:
    for entry in entries:
        state = "staged" if entry.staged else f"unfinished, {len(entry.uploads)} open uploads"
        when = f"{entry.touched:%Y-%m-%d %H:%M}" if entry.touched else "-"
        click.echo(f"{entry.model}  {len(entry.keys)} objects  {entry.bytes / 1e9:.2f} GB  {when}  {state}")
    if not entries:
        click.echo("nothing")


def _json(document: Mapping[str, Any]) -> None:
    click.echo(json.dumps(document, indent=2))


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line, one member per option."""

    target: str | None
    source: str | None
    name: str | None
    to: str | None
    region: str | None
    trust_remote_code: bool
    do_list: bool
    do_verify: bool
    quick: bool
    do_prune: bool
    yes: bool
    in_cluster: bool
    hub_secret: str | None
    context: str | None
    print_policy: bool
    as_json: bool


@click.command()
@click.argument("target", required=False, metavar="[STACK | ORG/NAME@REVISION]")
@click.option("--source", help="hf:ORG/NAME@REVISION, or a folder, instead of a stack's model.")
@click.option("--name", help="ORG/NAME under which a folder is staged.")
@click.option("--to", help="s3://BUCKET/models, instead of a stack's bucket.")
@click.option("--region", help="Region the bucket must be in. A stack says its own.")
@click.option("--trust-remote-code", is_flag=True, help="Stage the model's Python files too.")
@click.option("--list", "do_list", is_flag=True, help="Show what is in the bucket.")
@click.option("--verify", "do_verify", is_flag=True, help="Read every object again and compare hashes.")
@click.option("--quick", is_flag=True, help="With --verify: compare only sizes and the checksums that S3 holds.")
@click.option("--prune", "do_prune", is_flag=True, help="Show what no stack uses; with --yes, delete it.")
@click.option("--yes", is_flag=True, help="With --prune: delete.")
@click.option("--in-cluster", is_flag=True, help="Run as a Job on a CPU node of the stack's cluster, and follow it.")
@click.option("--hub-secret", help="With --in-cluster: Secret whose key `token` is HF_TOKEN, for gated models.")
@click.option("--context", help="With --in-cluster: kubeconfig context of the cluster.")
@click.option("--print-policy", is_flag=True, help="Print the IAM policy that staging needs; nothing is staged.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(**given: Any) -> int:  # noqa: ANN401 - click passes options by name; Options types them
    """Put one model revision into the weight bucket, verified, all or nothing.

    Stages the model of STACK, or --source into --to. Interrupted, it goes on where it stopped when run again.
    """
    options = Options(**given)
    asked = request(
        options.target,
        source=options.source,
        name=options.name,
        to=options.to,
        region=options.region,
        trust_remote_code=options.trust_remote_code,
    )
    if options.print_policy:
        _json(policy(asked))
        return 0
    if options.do_list:
        return _list(asked, as_json=options.as_json)
    if options.do_verify:
        return _verify(asked, quick=options.quick, as_json=options.as_json)
    if options.do_prune:
        return _prune(asked, yes=options.yes, as_json=options.as_json)
    return _stage(asked, options)


def _stage(asked: Request, options: Options) -> int:
    if options.in_cluster:
        from scripts import stage_in_cluster  # noqa: PLC0415 - only this way of staging needs a Kubernetes client

        document = stage_in_cluster.run(
            asked.stack, _origin(asked), asked.bucket, context=options.context, hub_secret=options.hub_secret
        )
        _json(document) if options.as_json else click.echo(f"{document['state']}: {document['uri']}")
        return 0
    outcome = stage_here(asked)
    _json(outcome.document()) if options.as_json else _say_outcome(outcome, asked.stack)
    return 0


def policy(asked: Request) -> Mapping[str, object]:
    """The IAM policy that staging what was asked for needs."""
    region = asked.region or "us-east-1"
    model = asked.stack.model.source if asked.stack and asked.stack.model else None
    return stager_policy(
        partition=partition_of(region),
        bucket=asked.bucket,
        model=model or (asked.origin.hub_name if asked.origin else None) or EVERY_MODEL,
        kms_key_arn=asked.stack.environment.bucket.kms_key_arn if asked.stack else None,
    )


def _list(asked: Request, *, as_json: bool) -> int:
    entries = inventory.inventory(asked.open_bucket())
    if as_json:
        _json({"bucket": asked.bucket, "models": [entry.document() for entry in entries]})
    else:
        _say_entries(entries)
    return 0


def _verify(asked: Request, *, quick: bool, as_json: bool) -> int:
    verdict = verified(asked, quick=quick)
    if as_json:
        _json(verdict.document())
    else:
        _say_verdict(verdict)
    return 1 if verdict.findings else 0


def _prune(asked: Request, *, yes: bool, as_json: bool) -> int:
    bucket = asked.open_bucket()
    entries = prunable(asked, bucket)
    if yes:
        for entry in entries:
            inventory.remove(bucket, entry)
    if as_json:
        _json({"bucket": bucket.name, "removed": yes, "models": [entry.document() for entry in entries]})
        return 0
    _say_entries(entries)
    if entries:
        click.echo("removed" if yes else "nothing was removed: say --yes to remove it", err=True)
    if entries and not yes and asked.reference is None:
        words = "a model is in use when a stack file names it: first `pulumi up` every stack whose revision has changed"
        click.echo(words, err=True)
    return 0
