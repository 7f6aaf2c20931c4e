"""Arithmetic: numbers in, numbers out. Imports nothing of ours and no cloud SDK."""
