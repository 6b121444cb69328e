"""Schemas by a registry's id: a registry with the Confluent API, asked only for values in Confluent's framing.

No answer is never taken for "no such schema": that would make a value UNDECODABLE for ever because a machine was down
for a minute. So a lookup waits, and says so, until the registry answers or the process is told to leave.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from epochfence.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

MAX_SCHEMA_ID = (1 << 31) - 1
"""Ids are positive 32-bit numbers. Any other is nobody's, and is not asked for: registries answer it in odd ways."""
MAX_CACHED = 4096
_NO_SUCH_SCHEMA = (404, 40403)
"""HTTP status and error code of the API. A 404 without the code comes from something else at a wrong address."""
_STOP_CHECK_S = 0.05


class Registry:
    """Looks schemas up. Ids never change their meaning, so what was found is kept; what was not found is not."""

    def __init__(
        self,
        url: str,
        stop: Callable[[], bool],
        log: Callable[[str], None],
        *,
        timeout_ms: int = 5_000,
        first_wait_ms: int = 100,
        longest_wait_ms: int = 5_000,
    ) -> None:
        """`url`: one address or several with commas; user:password in the first one is used for all, and never shown.

        `stop` says that the process is to leave; `log` gets one line for each wait, which doubles from `first_wait_ms`
        up to `longest_wait_ms`. `timeout_ms` bounds each step of a request (connect, read). Raises UsageError when the
        url is none, or the extra `registry` is not installed.
        """
        parts = _split(url)
        self._shown = ", ".join(_without_credentials(part) for part in parts)
        self._stop = stop
        self._log = log
        self._first_wait_ms = first_wait_ms
        self._longest_wait_ms = longest_wait_ms
        self._known: dict[int, str | None] = {}
        self._client = _open_client(parts, timeout_ms)

    def schema_by_id(self, schema_id: int) -> str | None:
        """The Avro schema with this id, as JSON text; None when the registry has no such schema.

        None also for what is not one whole Avro schema: another schema type, or a schema with references to others.
        Its values are UNDECODABLE; a writer registers one schema with everything in it. Raises ClusterError when
        `stop` said to leave before the registry answered.
        """
        if not 1 <= schema_id <= MAX_SCHEMA_ID:
            return None
        if schema_id in self._known:
            return self._known[schema_id]
        wait_ms = self._first_wait_ms
        while True:
            found, text, why = self._ask(schema_id)
            if why is None:
                break
            self._log(f"the schema registry at {self._shown} {why}; schema {schema_id} is waited for")
            self._wait(schema_id, wait_ms)
            wait_ms = min(wait_ms * 2, self._longest_wait_ms)
        if found:
            self._keep(schema_id, text)
        return text

    def close(self) -> None:
        """Closes the connections. Calling it again does nothing."""
        self._client.close()

    def _ask(self, schema_id: int) -> tuple[bool, str | None, str | None]:
        """One request: whether there is such an id, its Avro text, and why there was no answer (None: there was)."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        # It would keep an answer without a schema, and give it again for ever.
        self._client.clear_caches()  # type: ignore[no-untyped-call]
        try:
            schema = self._client.get_schema(schema_id)
        except SchemaRegistryError as error:
            if (error.http_status_code, error.error_code) == _NO_SUCH_SCHEMA:
                return False, None, None
            return False, None, f"answers HTTP {error.http_status_code}{_hint(error.http_status_code)}"
        except Exception as error:  # noqa: BLE001 - whatever the HTTP client raises, there was no answer
            return False, None, f"does not answer ({type(error).__name__})"
        if schema.schema_type not in (None, "AVRO") or schema.references:
            return True, None, None
        if not isinstance(schema.schema_str, str):
            return False, None, "answers without a schema"
        return True, schema.schema_str, None

    def _keep(self, schema_id: int, text: str | None) -> None:
        if len(self._known) >= MAX_CACHED:  # bounded: whoever may register schemas may register many
            del self._known[next(iter(self._known))]
        self._known[schema_id] = text

    def _wait(self, schema_id: int, wait_ms: int) -> None:
        until = time.monotonic() + wait_ms / 1000
        while True:
            if self._stop():
                raise ClusterError(
                    f"stopped while waiting for schema {schema_id} from the schema registry at {self._shown}"
                )
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _STOP_CHECK_S))


def _open_client(parts: list[SplitResult], timeout_ms: int) -> "SchemaRegistryClient":
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError:
        raise UsageError("a schema registry needs the extra `registry`: pip install 'epochfence[registry]'") from None
    options: dict[str, object] = {
        "url": ",".join(_without_credentials(part) for part in parts),
        # Seconds. Without it a registry that accepts and then says nothing would hold a partition for ever.
        "timeout": timeout_ms / 1000,
        # We wait ourselves: the client would sleep through a request to stop.
        "max.retries": 0,
    }
    if parts[0].username is not None:
        # Not in the url, which the HTTP client writes into its own log.
        options["basic.auth.user.info"] = f"{unquote(parts[0].username)}:{unquote(parts[0].password or '')}"
    return SchemaRegistryClient(options)


def _split(url: str) -> list[SplitResult]:
    """The addresses in `url`. Raises UsageError; the url is not repeated, since it may hold a password."""
    try:
        parts = [urlsplit(one.strip()) for one in url.split(",")]
        good = all(part.scheme in ("http", "https") and part.hostname and (part.port or 1) for part in parts)
    except ValueError:
        good = False
    if not good:
        raise UsageError("schema_registry_url is not a url: give http://host:port or https://host:port, with its path")
    return parts


def _without_credentials(part: SplitResult) -> str:
    return part._replace(netloc=part.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _hint(status: int) -> str:
    match status:
        case 401 | 403:
            return " (check the user and password in schema_registry_url)"
        case 404:
            return " but not as a registry does (check the path in schema_registry_url)"
        case _:
            return ""
