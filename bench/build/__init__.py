"""Builds the benchmark's own corpora: scripts, speech, rooms, masks, manifests."""
