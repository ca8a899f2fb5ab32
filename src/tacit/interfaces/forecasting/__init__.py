"""Forecasts: fits to made-up tables, before any data are read."""
