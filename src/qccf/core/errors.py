"""The tree of errors. Each ends as one sentence that names the value, the limit and the remedy."""


class QccfError(Exception):
    """Base of all errors that the user can mend; the command line prints it and exits with status 2."""


class ConfigError(QccfError):
    """A setting that is unknown, out of range, or contradicts another."""


class InfeasibleError(ConfigError):
    """Settings with which no client can ever deliver its model within the deadline."""


class ProblemError(QccfError):
    """A round's problem that breaks a rule of its format."""


class SolverError(QccfError):
    """A request that a solver does not support."""


class PolicyError(QccfError):
    """A policy that returned an invalid decision or state."""


class DivergedError(QccfError):
    """A model whose weights are no longer finite numbers."""


class CheckpointError(QccfError):
    """A checkpoint that cannot be used."""


class RunFolderError(QccfError):
    """A folder that does not hold a complete run."""
