"""The error of the report: one line, said without a traceback."""


class ReportError(Exception):
    """Something in the inputs of the report that must be put right first; nothing was written."""
