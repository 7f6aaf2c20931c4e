"""Container images: read, explained, cut again, copied, built, baked."""
