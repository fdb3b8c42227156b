"""Programs that run inside the peers' environments; they import ``nervure_lab.endpoint`` and their peer."""
