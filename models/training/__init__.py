"""Offline training: seeded data simulation, training recipes and export. Nothing here is imported by the live path."""
