"""The environment's cluster as its API server shows it: what holds GPU nodes up, and what controllers made."""
