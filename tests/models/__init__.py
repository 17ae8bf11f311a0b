"""Tests of the target networks."""
