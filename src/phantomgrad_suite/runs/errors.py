"""Errors that a user can act on: one line, said without a traceback."""


class UserError(Exception):
    """Something the user can put right; the message says what and how."""


class MissingDataError(UserError):
    """A data set is not where it was looked for."""
