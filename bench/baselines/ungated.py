"""A policy taken at its word: what it proposes counts as done, with no gate behind it.

So audio language models are scored in the papers. The policy is the settings' one, or the one after a colon
(``ungated:qwen3-omni:dir=FOLDER``); it is told what it is always told.
"""

from __future__ import annotations

from bench.contestants import Contestant, Setup


def load(setup: Setup) -> Contestant:
    """Load the product's ears and policy, without a gate."""
    return Contestant(setup.parts(), setup.catalogue, as_proposed=True)
