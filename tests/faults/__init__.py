"""Faults on the real engine, and the house that tests of whole workspaces live in."""
