"""``python -m ramify`` is the ``ramify`` command."""

import sys

from ramify.cli import main

sys.exit(main())
