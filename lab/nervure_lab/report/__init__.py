"""From figures to documents."""
