"""Transports of the operating system as peers of the link, a file each with its ``PEER``."""
