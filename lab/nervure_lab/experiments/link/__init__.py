"""The experiment ``link``: samples at a fixed rate over an emulated bad link."""
