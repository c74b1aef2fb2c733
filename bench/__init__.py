"""Measurement: replay through the live loop, baselines, scores, reports."""
