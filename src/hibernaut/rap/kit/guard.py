"""What a tool server looks at before it reads a request: where it was sent, by whom, and what it says it is."""

import hmac
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from hibernaut.errors import HibernautError, TokenRefused, TooLarge
from hibernaut.rap.answers import answer_to
from hibernaut.rap.listening import Scope
from hibernaut.rap.origins import is_loopback_host


class RequestRefused(HibernautError):
    """A request is not what it must be, whatever it says. `status` is that of the answer."""

    code = "request_refused"

    def __init__(self, why: str, status: int) -> None:
        super().__init__(why)
        self.status = status


class Guard:
    """Refuses requests that a web page, or somebody without the secret, has sent.

    Args:
        secret: what a request must bear, if anything.
        url: the server's own public URL; its host is taken on a listener of this machine, too.
    """

    def __init__(self, secret: str | None, url: str) -> None:
        self._secret = secret.encode() if secret else b""
        self._host = (urlsplit(url).hostname or "") if url else ""

    def check_place(self, scope: Scope) -> None:
        """Refuse what came to this machine under a foreign name, as after a DNS rebinding.

        Raises:
            RequestRefused.
        """
        if len(Headers(scope=scope).getlist("host")) > 1:
            raise RequestRefused("the request must name one host", 400)
        server = scope.get("server")
        if server is None or not is_loopback_host(str(server[0])):
            return
        try:
            host = urlsplit(f"//{Headers(scope=scope).get('host', '')}").hostname or ""
        except ValueError:
            host = ""
        if host != self._host and not is_loopback_host(host):
            raise RequestRefused("this server listens on its own machine only, and the Host is a foreign one", 403)

    def check_caller(self, request: Request, *, secret: bool) -> None:
        """Refuse what a web page sent, or, where it is asked for, what does not bear the secret.

        Raises:
            RequestRefused. TokenRefused.
        """
        if "origin" in request.headers:
            raise RequestRefused("this server is not for web pages: a request with an Origin is refused", 403)
        if not (secret and self._secret):
            return
        scheme, _, borne = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(borne.strip().encode(), self._secret):
            raise TokenRefused("this server wants its secret: send it as `Authorization: Bearer …`")


async def read_body(request: Request, limit: int, setting: str) -> bytes:
    """Return the body of a request, of which no more is read than is taken.

    Raises:
        RequestRefused: it is not JSON by its own word, or was broken off.
        TooLarge: it is above `limit`, which is set by `setting`.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestRefused("the content type must be application/json", 415)
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise RequestRefused("the body must not be compressed", 415)
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and len(announced) < len(str(limit)) + 3 and int(announced) > limit:
        raise TooLarge("the body", int(announced), limit, setting)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise TooLarge("the body", len(body), limit, setting, cut_short=True)
    except ClientDisconnect:
        raise RequestRefused("the request was broken off", 400) from None
    return bytes(body)


def response_to(error: HibernautError) -> Response:
    """Return what a request is answered with that was refused."""
    if isinstance(error, RequestRefused):
        body = msgspec.json.encode({"error": error.code, "message": str(error)})
        return Response(body, error.status, media_type="application/json")
    answer = answer_to(error)
    headers = dict(answer.headers)
    if isinstance(error, TokenRefused):
        headers["WWW-Authenticate"] = "Bearer"
    return Response(answer.body, answer.status, headers)
