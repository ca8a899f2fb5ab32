"""Descriptions of models, without data."""
