from . import runs as runs
