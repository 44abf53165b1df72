"""Asks a running appliance over its control socket (docs/control.md).

    from bedplate import Control
    with Control.open("demo") as control:
        print(control.call("ping")["version"])
        control.call("blockd.hold", volume="ram0", on=True)

Each call waits for its answer, up to the time limits. An earlier client of a serial line may have
left a request incomplete, so each request follows an empty line and has a unique id, and lines that
do not answer it are skipped. Threads: each Control one at a time.
"""

from __future__ import annotations

import itertools
import json
import secrets
import socket
import time
from types import TracebackType
from typing import Any

from .counters import RUNTIME_DIRECTORY, path_of
from .error import Error

SUFFIX = ".control"

_LINE_BYTES_MAX = 64 << 20
_SHOWN_MAX = 60  # characters of a line that is not an answer


class Control:
    """A connection to the control socket of an appliance.

    `timeout` is the limit of a request and its answer in seconds, `silence` the limit between two
    pieces of the answer. Errors of the constructor: nobody listens at `path`, or this user may not
    connect.
    """

    def __init__(self, path: str, timeout: float = 300.0, silence: float = 15.0) -> None:
        self.path = path
        self._timeout = timeout
        self._silence = silence
        self._ids = (f"{secrets.token_hex(8)}-{count}" for count in itertools.count(1))
        self._received = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(silence)
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise Error.of(f"connecting to {path}", error,
                           "start it with [control] in its configuration; only root, its own user "
                           "and the group of [control] may ask") from error

    @classmethod
    def open(cls, appliance: str | None = None, directory: str = RUNTIME_DIRECTORY,
             timeout: float = 300.0, silence: float = 15.0) -> Control:
        """The control socket of an appliance. The name is optional if only one runs there."""
        return cls(path_of(appliance, directory, SUFFIX), timeout, silence)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Control:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def call(self, method: str, /, **parameters: str | int | bool) -> Any:
        """Calls the method, and returns its result: what JSON has, as Python has it.

        Errors: the appliance refuses the request: the Error has its `code`. The appliance ends the
        connection, or does not answer in time: the request may or may not be executed.
        """
        own_id = next(self._ids)
        request = {"jsonrpc": "2.0", "id": own_id, "method": method, "params": parameters}
        asked = _Asked(f"asking {self.path} for {method}", time.monotonic() + self._timeout)
        self._send(b"\n" + json.dumps(request).encode() + b"\n", asked)
        while True:
            line = self._line(asked)
            try:
                said = json.loads(line)
            except (ValueError, RecursionError):
                asked.other = _shown(line) or asked.other
                continue
            if not isinstance(said, dict) or not ("result" in said or "error" in said):
                asked.other = _shown(line)
            elif said.get("id") == own_id:
                return self._result(said, asked)
            elif said.get("id") is None and "error" in said:
                asked.complaint = said["error"]

    @staticmethod
    def _result(said: dict[str, Any], asked: _Asked) -> Any:
        if "error" not in said:
            return said["result"]
        raise Error(asked.doing, _message(said["error"]), code=_code(said["error"]))

    def _send(self, text: bytes, asked: _Asked) -> None:
        try:
            self._socket.settimeout(self._patience(asked))
            self._socket.sendall(text)
        except TimeoutError as error:
            raise self._failure(asked, "it did not take the request in time") from error
        except OSError:
            pass  # it has ended the connection: the lines that it sent before say why

    def _line(self, asked: _Asked) -> bytes:
        looked = 0
        while (end := self._received.find(b"\n", looked)) < 0:
            looked = len(self._received)
            if looked > _LINE_BYTES_MAX:
                raise self._failure(asked, "its reply is not a valid answer")
            try:
                self._socket.settimeout(self._patience(asked))
                piece = self._socket.recv(1 << 16)
            except TimeoutError as error:
                raise self._failure(asked, "it did not answer in time") from error
            except OSError as error:
                raise self._failure(asked, error.strerror or str(error)) from error
            if not piece:
                raise self._failure(asked, "it closed the connection")
            self._received += piece
        line = bytes(self._received[:end])
        del self._received[:end + 1]
        return line

    def _patience(self, asked: _Asked) -> float:
        """The seconds that the next step may take."""
        left = asked.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return min(left, self._silence)

    def _failure(self, asked: _Asked, answer: str) -> Error:
        """An answer by the peer says more than `answer`."""
        cure = "see its log, and `bedplate top`"
        if asked.complaint is not None:
            return Error(asked.doing, _message(asked.complaint), cure, _code(asked.complaint))
        other = asked.other or _shown(bytes(self._received[:4 * _SHOWN_MAX]))
        received = f"; received: {other}" if other else ""
        return Error(asked.doing, answer + received, cure)


class _Asked:
    """The state of one request."""

    def __init__(self, doing: str, until: float) -> None:
        self.doing = doing
        self.until = until
        self.complaint: Any = None  # an error that was answered without an id
        self.other = ""  # the last line that is not an answer to it


def _message(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else "an error without a message"


def _code(error: Any) -> int | None:
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else None


def _shown(line: bytes) -> str:
    """The start of the line, printable."""
    text = line.decode(errors="replace").strip()[:_SHOWN_MAX]
    return "".join(each if each.isprintable() else "?" for each in text)
