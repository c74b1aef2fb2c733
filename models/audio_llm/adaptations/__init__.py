"""Training-free adaptations: policies that let any chat take bounded, private steps before it writes one action."""
