"""Training of the policy: what it reads and writes (rows, mixture), and how it learns (SFT, pair GRPO, export)."""
