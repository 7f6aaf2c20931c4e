"""The whole chain on one machine: S3 server, staged model, rendered pod, the real engine. No AWS, no GPU."""
