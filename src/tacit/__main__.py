"""``python -m tacit`` is the ``tacit`` command."""

import sys

from tacit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
