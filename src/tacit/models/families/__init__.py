"""Families: distributions of a row's outcome given the linear predictor."""
