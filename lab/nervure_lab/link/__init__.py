"""The experiment ``link``: samples at a fixed rate over an emulated bad link.

Its adapters, endpoints and analysis are its own: it asks other questions than the experiments on one host.
"""
