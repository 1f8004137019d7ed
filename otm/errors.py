"""Exceptions of OTM; they all derive from `OTMError`.

Each message names the bad value, the allowed values and a remedy.  Errors about input also derive
from `ValueError`, so code that does not import OTM can catch them.
"""

from __future__ import annotations

__all__ = [
    "CertificateError",
    "DownloadError",
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
    "ProcessError",
    "SolverError",
    "UnknownMethodError",
    "UnsupportedVersionError",
]


class OTMError(Exception):
    """Base class of all exceptions that OTM raises."""


class InvalidInputError(OTMError, ValueError):
    """An argument is not valid for the function."""


class InvalidDistributionError(InvalidInputError):
    """A distribution is not valid, or the draft and the target have different tokens."""


class InvalidDraftCountError(InvalidInputError):
    """The number of drafts k is not an integer of at least one."""


class InvalidDraftsError(InvalidInputError):
    """Draft tokens have the wrong shape or type, lie outside the vocabulary or are impossible."""


class NoSuchRowError(InvalidInputError, IndexError):
    """A row index is out of range for the problem or the solution."""


class InvalidUniformsError(InvalidInputError):
    """Uniforms have the wrong shape or do not lie in [0, 1)."""


class InvalidParameterError(InvalidInputError):
    """A rule's own parameter (such as k-Seq's division factor) is outside its range."""


class UnknownMethodError(InvalidInputError):
    """No method, rule or figure has the requested name."""


class CertificateError(OTMError, ValueError):
    """A certificate does not prove its claim, or the file is not a certificate."""


class DownloadError(OTMError, RuntimeError):
    """A model cannot be downloaded, a file has the wrong checksum, or the disk is full."""


class EndpointError(OTMError, RuntimeError):
    """A server cannot be reached, rejects a request, or sends an invalid answer."""


class ProblemTooLargeError(OTMError, MemoryError):
    """The method would exceed its limit of memory or work."""


class ProcessError(OTMError, RuntimeError):
    """A program does not start, ends early, does not answer in time, or sends an invalid answer."""


class SolverError(OTMError, RuntimeError):
    """An external solver ended with a status other than optimal."""


class MissingDependencyError(OTMError, ImportError):
    """An optional package is missing; the message names the extra that installs it."""


class UnsupportedVersionError(OTMError, RuntimeError):
    """The installed version of another library is not one that OTM supports."""
