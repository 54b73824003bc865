"""The package under test is the one in the build tree."""

import sys

import ranks

sys.path.insert(0, str(ranks.BUILD / "python"))
