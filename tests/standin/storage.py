"""S3: buckets, and their configurations whose answers are shaped unlike their requests."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from tests.standin.records import Record
from tests.standin.resources import Resource
from tests.standin.wire import Properties

FIRST_REGION = "us-east-1"
"""The region that must not be named as a bucket's location."""


class Bucket(Resource):
    """Lives in moto only, so it outlives the stand-in's records and can be found again."""

    @override
    def creation(self, request: Properties, inputs: Properties) -> Properties:
        region = self.world.cloud.region
        if region != FIRST_REGION:
            request["CreateBucketConfiguration"] = {"LocationConstraint": region}
        return request

    @override
    def describe(self, record: Record) -> dict[str, Any] | None:
        cloud = self.world.cloud
        buckets = cloud.call("s3.ListBuckets", {})["Buckets"]
        if record.id not in {bucket["Name"] for bucket in buckets}:
            return None
        tagging = cloud.find("s3.GetBucketTagging", {"Bucket": record.id})
        return {"Bucket": record.id, "TagSet": tagging["TagSet"] if tagging else []}

    @override
    def before_delete(self, record: Record) -> None:
        if not record.inputs.get("forceDestroy"):
            return
        bucket = {"Bucket": record.id}
        versions = self.world.cloud.call("s3.ListObjectVersions", bucket)
        for entry in versions.get("Versions", []) + versions.get("DeleteMarkers", []):
            version = bucket | {"Key": entry["Key"], "VersionId": entry["VersionId"]}
            self.world.cloud.call("s3.DeleteObject", version)


class BucketLifecycleConfiguration(Resource):
    """Its answer lacks the level that its request has."""

    @override
    def describe(self, record: Record) -> dict[str, Any] | None:
        found = super().describe(record)
        return None if found is None else {"LifecycleConfiguration": found}


class BucketVersioning(Resource):
    """As above; a bucket without versioning answers with nothing."""

    @override
    def describe(self, record: Record) -> dict[str, Any] | None:
        found = super().describe(record)
        return None if found is None else {"VersioningConfiguration": found}
