"""What comes before and after the work of a run: compose, check, build, run, record."""
