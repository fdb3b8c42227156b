"""Experiments that are declared in files and compare all peers under the same conditions."""
