"""Turning a table into rows, each row by itself: nothing here computes across rows."""
