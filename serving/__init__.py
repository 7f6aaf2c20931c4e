"""What a pod runs: a frozen spec in, Kubernetes objects and the launcher out."""
