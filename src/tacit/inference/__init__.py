"""Algorithms: post-processing of what the gate releases, one per file."""
