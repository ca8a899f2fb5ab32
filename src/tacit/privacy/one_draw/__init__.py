"""Draws that are private by themselves, where one unit has a bounded say in the posterior."""
