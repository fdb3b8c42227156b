"""Programs that run inside the peers' environments. They import ``nervure_lab.endpoint`` and their peer only."""
