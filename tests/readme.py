"""Run the README as printed, where nothing but the wheel is installed: see ``pages``.

python tests/readme.py README.md
"""

import sys

import pages

if __name__ == "__main__":
    print(f"{sum(map(pages.run, sys.argv[1:]))} blocks ran as printed")  # noqa: T201
