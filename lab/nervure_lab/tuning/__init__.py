"""Settings of DDS for large samples over a lossy link: computed, written, verified over the emulator."""
