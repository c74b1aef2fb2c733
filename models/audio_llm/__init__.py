"""Audio language models as policies: one conversation vocabulary, one action contract, many backends."""
