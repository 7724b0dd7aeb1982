"""Errors that a user can act on: reported in one line, without a traceback."""


class UserError(Exception):
    """Something the user can put right; the message states what is wrong and what to do."""


class SettingError(UserError):
    """A setting that cannot work: no run has begun, and none counts as failed."""


class MissingDataError(UserError):
    """A data set is not in its folder."""
