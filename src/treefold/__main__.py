"""``python -m treefold`` is the ``treefold`` command."""

import sys

from treefold.cli import main

sys.exit(main())
