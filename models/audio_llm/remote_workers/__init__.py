"""Programs that run a model in an environment of its own, and the protocol that they speak."""
