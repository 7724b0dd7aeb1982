"""The first lines of each command."""

import signal
import subprocess
import sys

from graph_data import REPOSITORY


def test_interrupt_ends_a_command_without_a_traceback():
    program = "from phantomgrad_suite.process import start; start(); raise KeyboardInterrupt"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (found.returncode, found.stderr) == (-signal.SIGINT, b"interrupted\n")


def test_every_script_of_a_user_starts_so():
    others = {"lock.py", "make_thumbnails.py"}
    for script in (REPOSITORY / "scripts").glob("*.py"):
        assert ("\nstart()\n" in script.read_text()) == (script.name not in others), script
