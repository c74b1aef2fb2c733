"""What the gate is measured against: baselines and ablations, each in a file of its own (see ``bench.contestants``)."""
