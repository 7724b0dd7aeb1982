"""The packages of the suite, and the folders of the checkout that its commands read.

In a wheel these lie inside of the package, so that the commands work in any folder.
"""

from setuptools import find_namespace_packages, setup

SOURCES = "../src"
READ = {f"phantomgrad_suite.{name}": f"../{name}" for name in ("configs", "results", "scripts")}
DATA = {
    "phantomgrad_suite": [
        "py.typed",
        "data/SHA256SUMS",
        "data/embedded/*",
        "report/*.toml",
        "report/templates/*",
    ],
    "phantomgrad_reasoners": ["configs/**/*.yaml", "report/*.toml"],
}
OURS = ["phantomgrad_suite*", "phantomgrad_reasoners*", "hydra_plugins"]

setup(
    packages=[*find_namespace_packages(SOURCES, include=OURS), *READ],
    package_dir={"": SOURCES, **READ},
    package_data={**DATA, **{name: ["**/*"] for name in READ}},
    include_package_data=False,
)
