"""Files in an object store: written in place, since an object appears whole or not at all.

pyarrow's clients have no conditional writes, by which of two runs that claim a folder in the same
instant the store itself lets one through. S3 has them by ETag: `If-None-Match: *` writes where
there is nothing, `If-Match` over one version (Amazon S3 User Guide, "Conditional writes").
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from clsweep.errors import RequestError
from clsweep.outages import patiently, reason
from clsweep.results.disk import Data, require_size

T = TypeVar("T")

CONCURRENT = 16  # requests on many objects: each waits for the network most of its time
# pyarrow's names of them; other file systems do not write whole files in place
STORES = ("s3", "gcs", "abfs")

_REFUSED = {"PreconditionFailed", "NoSuchKey"}
_TIMEOUT_S = 20


class ObjectStore:
    """Files below a prefix, as those of a `Disk`. `uri` is as typed: with options after `?`."""

    def __init__(self, uri: str, fs: pafs.FileSystem, base: str):
        self.uri, self._fs, self._base = uri, fs, base.rstrip("/")

    def place(self, name: str) -> str:
        place, mark, options = self.uri.partition("?")
        return f"{place.rstrip('/')}/{name}{mark}{options}"

    def is_file(self, name: str) -> bool:
        info = self._do("read", name, lambda: self._fs.get_file_info(self._at(name)))
        return bool(info.type == pafs.FileType.File)

    def names(self, folder: str) -> list[str]:
        selector = pafs.FileSelector(self._at(folder), allow_not_found=True)
        infos = self._do("read", folder, lambda: self._fs.get_file_info(selector))
        return [info.base_name for info in infos if info.type == pafs.FileType.File]

    def read(self, name: str) -> bytes:
        """The content of a file; its end may be missing if a longer one replaces it meanwhile."""

        def read() -> bytes:
            with self._fs.open_input_file(self._at(name)) as file:
                require_size(self.place(name), file.size())
                return file.read()

        return self._do("read", name, read)

    def write(self, name: str, data: Data, *, durable: bool = True) -> None:
        """Replace a file; it is safe when this returns."""

        def write() -> None:
            # No `with`: it would complete the upload of what was sent before an exception.
            stream = self._fs.open_output_stream(self._at(name))
            stream.write(data)
            stream.close()

        self._do("written", name, write)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._do("removed", name, lambda: self._fs.delete_file(self._at(name)))

    def versioned(self, name: str) -> tuple[bytes, str] | None:
        """Content and version of a file, None if there is none; RequestError as in `_s3`."""
        return self._do("read", name, lambda: self._get(name))

    def replace(self, name: str, data: bytes, version: str | None) -> str | None:
        """Write over this version, None for no file at all; the new version, or None if another one
        stands there. `data` must be new: where the store has it already, an answer was lost.
        """
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}

        def replace() -> str | None:
            if made := self._s3("put_object", name, Body=data, **condition):
                return str(made["ETag"])
            stored = self._get(name)
            return stored[1] if stored and stored[0] == data else None

        return self._do("written", name, replace)

    def _get(self, name: str) -> tuple[bytes, str] | None:
        answer = self._s3("get_object", name)
        return answer and (answer["Body"], answer["ETag"])

    def _s3(self, request: str, name: str, **options: Any) -> Any:
        """A request of S3, or the like; None where its condition does not hold. What fails is an
        OSError, in the words of pyarrow, so that `patiently` knows what passes.
        """

        if self._fs.type_name != "s3":
            raise RequestError(
                f"{self.uri}: a run holds its folder by conditional writes, which clsweep knows of "
                "s3:// alone. Run into a folder, and copy it there; reading needs none"
            )
        bucket, _, key = self._at(name).partition("/")
        client = _s3_client(self.uri, self._fs.region)
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = getattr(client, request)(Bucket=bucket, Key=key, **options)
            return answer | {"Body": answer["Body"].read()} if "Body" in answer else answer
        except ClientError as error:
            details, about = error.response.get("Error", {}), error.response["ResponseMetadata"]
            code, status = details.get("Code", ""), about.get("HTTPStatusCode")
            if code in _REFUSED or status == 412:
                return None
            kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", code).upper() or "UNKNOWN"
            message = f"{details.get('Message') or kind} ({error.operation_name})"
        except BotoCoreError as error:
            kind, status, message = "NETWORK_CONNECTION", 0, f"curlCode: 0, {error}"
        raise OSError(f"AWS Error {kind} (HTTP status {status}) during S3 operation: {message}")

    def remove_unfinished(self, folders: Iterable[str]) -> None:
        """There is nothing: an upload that was cut off is no object."""

    def each(self, action: Callable[[str], T], names: Iterable[str]) -> list[T]:
        with ThreadPoolExecutor(CONCURRENT) as threads:
            return list(threads.map(action, names))

    def _at(self, name: str) -> str:
        return f"{self._base}/{name}"

    def _do(self, done: str, name: str, action: Callable[[], T]) -> T:
        try:
            return patiently(self.uri, action)
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise RequestError(f"{self.place(name)}: cannot be {done}: {reason(error)}") from error


@functools.lru_cache(maxsize=8)  # it takes a third of a second, and serves all threads
def _s3_client(uri: str, region: str | None) -> Any:
    """A client of what pyarrow's URI names: s3://[KEY:SECRET@]BUCKET/PREFIX[?OPTIONS]."""
    try:
        from botocore.config import Config
        from botocore.session import Session
    except ImportError:
        raise RequestError(
            f"{uri}: a run in an object store needs its conditional writes, and botocore for them: "
            "pip install 'clsweep[s3]'"
        ) from None
    parts = urlsplit(uri)
    options = dict(parse_qsl(parts.query))
    endpoint = options.get("endpoint_override")
    if endpoint and "://" not in endpoint:
        endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
    is_path = endpoint and options.get("force_virtual_addressing") != "true"
    config = Config(
        connect_timeout=_TIMEOUT_S,
        read_timeout=_TIMEOUT_S,
        retries={"total_max_attempts": 1},  # the caller asks again, and knows its own writes
        request_checksum_calculation="when_required",  # other stores know none
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if is_path else "auto"},
    )
    return Session().create_client(
        "s3",
        region_name=options.get("region") or region,
        endpoint_url=endpoint,
        aws_access_key_id=unquote(parts.username) if parts.username else None,
        aws_secret_access_key=unquote(parts.password) if parts.password else None,
        config=config,
    )
