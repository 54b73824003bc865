"""The package under test is the one that ranks get, too."""

import sys

import ranks

sys.path.insert(0, ranks.PACKAGE)
