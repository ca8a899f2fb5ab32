"""Encoding tables as rows, each row by itself. Nothing here computes across rows."""
