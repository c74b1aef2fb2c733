"""Real people's recordings through the live loop: what is played of them, and what comes of it."""
