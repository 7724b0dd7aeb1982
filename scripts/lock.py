"""Write requirements.lock: the exact version of every installed package, and no host.

Packages that exist for Linux alone carry a marker, so that the file serves other systems too.
"""

import argparse
import importlib.metadata
from pathlib import Path

HEADER = "# Exact versions of everything in .venv. Written by `make lock`; do not edit.\n"
LINUX_ONLY = ("nvidia-", "cuda-", "triton")
NOT_LOCKED = {"phantomgrad", "phantomgrad-suite", "pip", "setuptools", "wheel"}


def main() -> None:
    """Write the file."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    pins = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"].lower().replace("_", "-")
        if name not in NOT_LOCKED:
            marker = '; sys_platform == "linux"' if name.startswith(LINUX_ONLY) else ""
            pins[name] = f"{name}=={distribution.version.split('+')[0]}{marker}\n"
    Path("requirements.lock").write_text(HEADER + "".join(pins[name] for name in sorted(pins)))
    print(f"requirements.lock: {len(pins)} packages")


if __name__ == "__main__":
    main()
