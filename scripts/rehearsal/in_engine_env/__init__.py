"""Scripts that the engine environment's Python runs: it has what this package must not import."""
