"""An S3 server of this machine for the tests: moto's, behind a switch that makes it refuse.

moto knows no `If-Match` of a write, and asks and writes in two steps. Both conditions are therefore
kept here, one write at a time.
"""

from __future__ import annotations

import io
import logging
import threading
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

Answer = tuple[str, str]  # status line, S3's error code

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",  # nobody is asked for other credentials
}
SLOW_DOWN: Answer = ("503 Slow Down", "SlowDown")
ACCESS_DENIED: Answer = ("403 Forbidden", "AccessDenied")
PRECONDITION_FAILED: Answer = ("412 Precondition Failed", "PreconditionFailed")
REGION = "us-east-1"


class S3Server:
    """`refuse` decides on each request, given as its WSGI environment: None lets it pass.
    `requests` are all so far. A server that is not `conditional` writes whatever the condition.
    """

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.refuse: Callable[[dict[str, Any]], Answer | None] = lambda _: None
        self.requests: list[str] = []
        self.conditional = True
        self._writing = threading.Lock()
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def uri(self, place: str) -> str:
        """`place` is a bucket, and perhaps a prefix in it."""
        return f"s3://{place}?endpoint_override={self.address}&scheme=http&region={REGION}"

    def create_bucket(self, name: str) -> None:
        request = urllib.request.Request(f"http://{self.address}/{name}", method="PUT")
        urllib.request.urlopen(request).close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        answer = self.refuse(environ)
        is_write = environ["REQUEST_METHOD"] == "PUT"
        conditions = [
            environ.pop(f"HTTP_IF_{name}", None) if is_write else None
            for name in ("NONE_MATCH", "MATCH")
        ]
        if answer is None and is_write:
            with self._writing:  # those without a condition too: they come before or after one
                is_asked = self.conditional and any(conditions)
                if not is_asked or self._are_met(environ, *conditions):
                    return self._moto(environ, start_response)
            answer = PRECONDITION_FAILED
        if answer is None:
            return self._moto(environ, start_response)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        status, code = answer
        error = f"<Error><Code>{code}</Code><Message>refused</Message></Error>"
        body = f"<?xml version='1.0'?>{error}".encode()
        start_response(
            status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
        )
        return [body]

    def _are_met(self, environ: dict[str, Any], none_match: str | None, match: str | None) -> bool:
        head = {
            name: value
            for name, value in environ.items()
            if not name.startswith(("HTTP_X_AMZ", "CONTENT", "werkzeug"))
        } | {"REQUEST_METHOD": "HEAD", "wsgi.input": io.BytesIO()}
        parts: dict[str, str] = {}

        def start(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            parts.update({name.lower(): value for name, value in headers}, status=status)

        list(self._moto(head, start))
        etag = parts.get("etag") if parts["status"].startswith("200") else None
        return etag is None if none_match == "*" else etag == match
