"""Answers of a registry that are not "here it is" and not "there is no such schema": all of them mean wait."""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from epochfence.errors import ClusterError, UsageError
from epochfence.wire.registry import Registry

SCHEMA = '{"type": "record", "name": "X", "fields": []}'
Answer = tuple[int, bytes]
FOUND: Answer = 200, json.dumps({"schema": SCHEMA}).encode()


class Server:
    """A web server on loopback that gives the answers it was told to, the last one again and again."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append((self.path, self.headers.get("Authorization")))
                status, body = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.http.shutdown()
    thread.join()
    made.http.server_close()


def registry(url: str, lines: list[str], stop: Callable[[], bool] = lambda: False) -> Registry:
    return Registry(url, stop, lines.append, first_wait_ms=1, longest_wait_ms=2)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((503, b"starting"), "HTTP 503"),
        ((500, b'{"error_code": 50001, "message": "store"}'), "HTTP 500"),
        ((429, b"{}"), "HTTP 429"),
        ((401, b'{"error_code": 401}'), "check the user and password"),
        ((404, b"<html>no such page</html>"), "check the path"),
        ((404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'), "check the path"),
        ((404, b'{"error_code": 40401, "message": "no such subject"}'), "check the path"),
        ((302, b""), "HTTP 302"),
        ((200, b"<html>welcome</html>"), "does not answer"),
        ((200, b'"text"'), "does not answer"),
        ((200, b"{}"), "without a schema"),
    ],
)
def test_an_answer_that_says_nothing_about_the_schema_is_waited_out(server: Server, answer: Answer, why: str) -> None:
    server.answers = [answer, answer, FOUND]
    lines: list[str] = []
    assert registry(server.url, lines, lambda: len(lines) > 9).schema_by_id(5) == SCHEMA
    assert len(lines) == 2
    assert all(why in line and "schema 5" in line for line in lines)


def test_only_the_registrys_own_word_makes_an_id_unknown_and_it_is_asked_again(server: Server) -> None:
    server.answers = [(404, b'{"error_code": 40403, "message": "Schema 5 not found"}'), FOUND]
    lines: list[str] = []
    asked = registry(server.url, lines)
    assert asked.schema_by_id(5) is None
    assert [asked.schema_by_id(5) for _ in range(3)] == [SCHEMA] * 3
    assert len(server.requests) == 2
    assert lines == []


def test_credentials_are_sent_and_never_shown(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.answers = [(403, b""), (403, b"")]
    lines: list[str] = []
    url = server.url.replace("http://", "http://reader:s3cret%21@") + "/base"
    with caplog.at_level(logging.DEBUG), pytest.raises(ClusterError) as raised:
        registry(url, lines, lambda: len(lines) > 1).schema_by_id(5)
    path, authorization = server.requests[0]
    assert path.startswith("/base/schemas/ids/5")
    assert authorization == "Basic cmVhZGVyOnMzY3JldCE="
    shown = "".join(lines) + str(raised.value) + caplog.text
    assert "s3cret" not in shown
    assert f"{server.url}/base" in lines[0]


@pytest.mark.parametrize("url", ["", "reader:s3cret@host", "ftp://s3cret@host", "http://", "http://host:s3cret", "x,y"])
def test_a_url_that_is_none_is_said_in_one_line_without_repeating_it(url: str) -> None:
    with pytest.raises(UsageError, match="schema_registry_url") as raised:
        registry(url, [])
    assert "s3cret" not in str(raised.value)


def test_without_the_extra_it_says_which_one_to_install() -> None:
    program = (
        "import sys; sys.modules['httpx'] = sys.modules['httpx2'] = sys.modules['authlib'] = None\n"
        "from epochfence.errors import UsageError\n"
        "from epochfence.wire.registry import Registry\n"
        "try: Registry('http://127.0.0.1:1', lambda: True, print)\n"
        "except UsageError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "pip install 'epochfence[registry]'" in done.stdout, done.stderr
