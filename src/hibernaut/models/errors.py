"""How a completion can fail, by kind. Providers map their statuses and bodies to these.

    ModelError
    ├── RateLimited            too many requests; `retry_after` when the provider said so
    │   └── Throttled          more than our own limits allow; not held against the thread
    ├── Overloaded             the provider is out of capacity
    ├── ConnectionLost         no answer, or a stream that broke or stalled
    ├── ContextOverflow        the prompt is longer than the model's window
    ├── InvalidRequest         the provider will never take this request
    ├── AuthenticationFailed   no or a wrong key
    ├── Refused                the model declined to answer
    ├── OutputTruncated        the output limit left nothing that can be used
    └── ModelDefect            the model's own code failed

`retryable` ones are tried again, a bounded number of times; the others park the thread with the provider's words.
"""

from typing import ClassVar

from hibernaut.errors import ModelError


class RetryableModelError(ModelError):
    """A failure that may pass. `retry_after` is in milliseconds, 0 when unknown."""

    retryable: ClassVar[bool] = True

    def __init__(self, message: str, retry_after: int = 0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RateLimited(RetryableModelError):
    """Too many requests, or too many tokens."""

    code = "rate_limited"


class Throttled(RateLimited):
    """More than the limits allow that we have set ourselves. The provider was not asked."""

    code = "throttled"
    counted: ClassVar[bool] = False


class Overloaded(RetryableModelError):
    """The provider is out of capacity, or failed on its side (5xx)."""

    code = "overloaded"


class ConnectionLost(RetryableModelError):
    """No answer in time, or a stream that broke, stalled or ended without its last piece."""

    code = "connection_lost"


class ContextOverflow(ModelError):
    """The prompt is longer than the model's window (a body that is too large for the wire is `InvalidRequest`)."""

    code = "context_overflow"


class InvalidRequest(ModelError):
    """The provider will never take this request."""

    code = "invalid_request"


class AuthenticationFailed(ModelError):
    """No key, or one that is not taken."""

    code = "authentication_failed"


class Refused(ModelError):
    """The model declined to answer."""

    code = "refused"


class OutputTruncated(ModelError):
    """The output limit was reached before there was anything to use."""

    code = "output_truncated"


class ModelDefect(ModelError):
    """The model's own code raised something that is none of these errors."""

    code = "model_defect"
