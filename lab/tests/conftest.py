"""Makes the lab importable: it is not installed, it runs from the checkout."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
