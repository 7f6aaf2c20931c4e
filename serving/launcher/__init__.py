"""What runs inside the pod: starts the engine, times its phases, warms it up, and only then reports Ready.

These modules are shipped as one file (`bundle.source()`), run by the engine image's own Python: they import the
standard library and prometheus_client, nothing else of this repository, and boto3 only in the worker processes that
move a cache.
"""
