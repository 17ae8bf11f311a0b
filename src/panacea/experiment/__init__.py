"""Experiments: configuration, the loop over rounds, run directories."""
