"""Builds the benchmark's own corpora: what is said, and from it the recordings."""
