"""``python -m nervure_lab`` is ``nervure-lab``."""

from __future__ import annotations

import sys

from nervure_lab.cli import main

sys.exit(main())
