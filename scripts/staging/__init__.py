"""Staging: puts one pinned model revision into the in-region bucket, verified, all or nothing.

The story is told in `staging.run`: resolve the source, select its files, check them, move them, publish the manifest.
This package also runs inside the cluster with nothing but the engine image's Python (`python -m scripts.staging`), so
it imports boto3, huggingface_hub, the budget room and the standard library, and no more.
"""

from __future__ import annotations

import os

# Where awscrt is installed botocore signs with it, and its signer copies every body: 24 parts in flight then take
# another 200 MiB. Read when botocore is imported, which this package does below.
os.environ.setdefault("BOTO_DISABLE_CRT", "true")
