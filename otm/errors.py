"""The exceptions of OTM: every error the package raises on purpose derives from `OTMError`.

Messages say what was given, what is allowed and what to do about it.  Errors about input also
derive from `ValueError`, so that code which does not know OTM can still catch them.
"""

from __future__ import annotations

__all__ = [
    "CertificateError",
    "EndpointError",
    "InvalidDistributionError",
    "InvalidDraftCountError",
    "InvalidDraftsError",
    "InvalidInputError",
    "InvalidParameterError",
    "InvalidUniformsError",
    "MissingDependencyError",
    "NoSuchRowError",
    "ProblemTooLargeError",
    "SolverError",
    "UnknownMethodError",
    "UnsupportedVersionError",
]


class OTMError(Exception):
    """Root of the exceptions that OTM raises on purpose."""


class InvalidInputError(OTMError, ValueError):
    """An argument is not what the function can work with."""


class InvalidDistributionError(InvalidInputError):
    """A draft or target distribution is not valid, or the two do not fit together."""


class InvalidDraftCountError(InvalidInputError):
    """The number of drafts k is not an integer of at least one."""


class InvalidDraftsError(InvalidInputError):
    """Draft tokens have the wrong shape or type, lie outside the vocabulary or are impossible."""


class NoSuchRowError(InvalidInputError, IndexError):
    """An index into the rows of a problem or a solution is none of theirs."""


class InvalidUniformsError(InvalidInputError):
    """Uniforms have the wrong shape or do not lie in [0, 1)."""


class InvalidParameterError(InvalidInputError):
    """A rule's own parameter (such as k-Seq's division factor) is outside its range."""


class UnknownMethodError(InvalidInputError):
    """A method or figure was asked for by a name that does not exist."""


class CertificateError(OTMError, ValueError):
    """A certificate does not prove what it claims, or is not a certificate at all."""


class EndpointError(OTMError, RuntimeError):
    """A server cannot be reached, refuses, or answers what its interface does not allow."""


class ProblemTooLargeError(OTMError, MemoryError):
    """The method would need more memory than it is allowed; nothing was allocated."""


class SolverError(OTMError, RuntimeError):
    """An outside solver ended with a status other than optimal."""


class MissingDependencyError(OTMError, ImportError):
    """An optional package is needed; the message names the extra that brings it."""


class UnsupportedVersionError(OTMError, RuntimeError):
    """Another library's code is not what OTM was written against."""
