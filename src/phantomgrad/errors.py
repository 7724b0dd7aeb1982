"""Errors that a user can act on: one line, said without a traceback."""


class UserError(Exception):
    """Something the user can put right; the message says what and how."""


class ShapeError(UserError, ValueError):
    """An input that does not fit a model: a ``ValueError`` in a library, one line in a script."""


class MissingDataError(UserError):
    """A data set is not where it was looked for."""
