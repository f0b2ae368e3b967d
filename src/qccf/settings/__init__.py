"""Settings: their schema, presets and limits, and one round's problem as JSON."""
