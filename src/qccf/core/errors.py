"""Every mistake that a user can make ends as one of these, with one sentence that names value, limit and remedy."""


class QccfError(Exception):
    """Base of all errors that are the caller's to mend; the command line prints it and exits with status 2."""


class ConfigError(QccfError):
    """A setting that is unknown, out of range, or contradicts another."""


class ProblemError(QccfError):
    """A round's problem that breaks a rule of its format."""


class InfeasibleError(ConfigError):
    """A setting in which no client can ever deliver its model within the deadline."""


class SolverError(QccfError):
    """A solver that was asked for something it does not do."""


class DivergedError(QccfError):
    """A model whose weights are no longer numbers."""
