"""The live loop: clock, sources, turns, session, events, outputs, settings, command line."""
