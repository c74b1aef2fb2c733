"""The decision: grammar, evidence, ``decide``, repair, calibration. Pure: no model, clock, file or network."""
