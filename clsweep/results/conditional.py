"""One object of a store, replaced only by whoever knows what stands there: of two runs that claim a
folder in the same instant, the store itself lets one through.

pyarrow's clients have no conditional writes. S3 has them by ETag: `If-None-Match: *` writes where
there is nothing, `If-Match` over one version (Amazon S3 User Guide, "Conditional writes").
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from clsweep.errors import RequestError

T = TypeVar("T")

_REFUSED = {"PreconditionFailed", "NoSuchKey"}
_TIMEOUT_S = 20


class Versioned(Protocol):
    """An object whose every content has a version. What fails is an OSError, in the words of
    pyarrow, so that `object_store.patiently` knows what passes.
    """

    def read(self) -> tuple[bytes, str] | None:
        """Content and version; None if there is no such object."""

    def replace(self, data: bytes, version: str | None) -> str | None:
        """Write over this version, None for no object at all; the new version, or None if another
        one stands there.
        """


class S3Object:
    """An object in S3, or in a store that speaks like it."""

    def __init__(self, uri: str, bucket: str, key: str, region: str | None):
        self._client, self._at = _s3_client(uri, region), {"Bucket": bucket, "Key": key}

    def read(self) -> tuple[bytes, str] | None:
        def get() -> tuple[bytes, str]:
            answer = self._client.get_object(**self._at)
            return answer["Body"].read(), answer["ETag"]

        return self._unless_refused(get)

    def replace(self, data: bytes, version: str | None) -> str | None:
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}

        def put() -> str:
            return str(self._client.put_object(**self._at, Body=data, **condition)["ETag"])

        return self._unless_refused(put)

    def _unless_refused(self, request: Callable[[], T]) -> T | None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return request()
        except ClientError as error:
            told, answer = error.response.get("Error", {}), error.response["ResponseMetadata"]
            code, status = told.get("Code", ""), answer.get("HTTPStatusCode")
            if code in _REFUSED or status == 412:
                return None
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", code).upper() or "UNKNOWN"
            said = f"{told.get('Message') or name} ({error.operation_name})"
        except BotoCoreError as error:
            name, status, said = "NETWORK_CONNECTION", 0, f"curlCode: 0, {error}"
        raise OSError(f"AWS Error {name} (HTTP status {status}) during S3 operation: {said}")


def _s3_client(uri: str, region: str | None) -> Any:
    """A client of what pyarrow's URI names: s3://[KEY:SECRET@]BUCKET/PREFIX[?OPTIONS]."""
    parts = urlsplit(uri)
    options = dict(parse_qsl(parts.query))
    endpoint = options.get("endpoint_override")
    if endpoint and "://" not in endpoint:
        endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
    is_path = endpoint and options.get("force_virtual_addressing") != "true"
    try:
        return _client(
            endpoint,
            options.get("region") or region,
            "path" if is_path else "auto",
            unquote(parts.username) if parts.username else None,
            unquote(parts.password) if parts.password else None,
        )
    except ImportError:
        raise RequestError(
            f"{uri}: a run in an object store needs its conditional writes, and botocore for them: "
            "pip install 'clsweep[s3]'"
        ) from None


@functools.lru_cache(maxsize=8)  # it takes a third of a second, and serves all threads
def _client(
    endpoint: str | None, region: str | None, style: str, key: str | None, secret: str | None
) -> Any:
    from botocore.config import Config
    from botocore.session import Session

    config = Config(
        connect_timeout=_TIMEOUT_S,
        read_timeout=_TIMEOUT_S,
        retries={"total_max_attempts": 1},  # the caller asks again, and knows its own writes
        request_checksum_calculation="when_required",  # other stores know none
        response_checksum_validation="when_required",
        s3={"addressing_style": style},
    )
    return Session().create_client(
        "s3",
        region_name=region,
        endpoint_url=endpoint,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=config,
    )
