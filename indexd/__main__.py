"""`python -m indexd` runs the daemon."""

from __future__ import annotations

import sys

from indexd.daemon import main

if __name__ == "__main__":
    sys.exit(main())
