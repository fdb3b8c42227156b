"""Dataflows on several machines: see ``experiment``."""
