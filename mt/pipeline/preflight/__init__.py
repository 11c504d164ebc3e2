"""What `mt check --config` finds out before a run begins: figures, a trial, a forecast, warnings."""
