"""From result files to figures. Reads result files and nothing else: no adapter, no process, no clock."""
