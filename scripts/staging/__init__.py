"""Staging: puts one pinned model revision into the in-region bucket, verified, all or nothing.

The story is told in `staging.run`: resolve the source, select its files, check them, move them, publish the manifest.
This package also runs inside the cluster with nothing but the engine image's Python (`python -m scripts.staging`), so
it imports boto3, huggingface_hub, the budget room and the standard library, and no more.
"""
