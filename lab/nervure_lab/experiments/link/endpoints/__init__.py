"""Programs that run in the emulator's hosts: ``PROGRAM receive`` and ``PROGRAM send``."""
