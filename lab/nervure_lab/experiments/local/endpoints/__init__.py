"""Programs that run inside the peers' environments."""
