"""Reads corpora that others made into the bench's own trials, one file a corpus."""
