"""Panacea."""
