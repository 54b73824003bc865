"""What goes wrong, in kinds that a caller can act on. Every exception of Virga's own is an ``Error``."""


class Error(RuntimeError):
    """``code``: what kind, a short lower-case text. ``rank``: the rank to blame where there is one, else None."""

    code = "unknown"
    rank = None


class InvalidArgument(Error, ValueError):
    """Wrong use, found before anything was sent."""


class DeadlineExceeded(Error):
    """A wait ran out."""


class Cancelled(Error):
    """This process gave the operation up."""


class PeerLost(Error):
    """A rank died, was stopped or was cut off."""


class Mismatch(Error):
    """Ranks disagree: operation, root, shape, model, options. The message names the ranks and the difference."""


class Corrupt(Error):
    """Bytes from the wire or the disk that can't be what they claim to be."""


class Aborted(Error):
    """Another rank failed first and told everybody."""


class ResourceExhausted(Error):
    """A bounded queue or the disk is full."""


class Unavailable(Error):
    """Something outside is not there: a port, a privilege, a job that has ended."""


class NonFinite(Error):
    """NaN or Inf where a policy forbids it."""


_BY_CODE = {
    "invalid argument": InvalidArgument,
    "deadline exceeded": DeadlineExceeded,
    "cancelled": Cancelled,
    "peer lost": PeerLost,
    "ranks disagree": Mismatch,
    "corrupt data": Corrupt,
    "aborted": Aborted,
    "resource exhausted": ResourceExhausted,
    "unavailable": Unavailable,
    "non-finite value": NonFinite,
}


def from_core(code: str, message: str, culprit: int) -> Error:
    """The exception for an error of the C++ library."""
    error = _BY_CODE.get(code, Error)(message)
    error.code = code
    error.rank = None if culprit < 0 else culprit
    return error


def invalid(message: str) -> InvalidArgument:
    """Wrong use that this package finds by itself."""
    return from_core("invalid argument", message, -1)
