# SPDX-License-Identifier: Apache-2.0
"""Reads the one error of a foreign program that has to be told apart and has no code: a broken inner connection.

When the connection between Gym's model server and the engine breaks, that server answers 500 with ``repr`` of the
exception as a JSON string: ``"ClientConnectorError(ConnectionKey(...), ...)"``
(``nemo_gym.server_utils.SimpleServer.setup_exception_middleware``). Nothing else in the answer says so. This
module is the only place of the package that reads another program's words, and takes only the name before the
bracket.
"""

from __future__ import annotations

import re

import aiohttp
import orjson

_REPR = re.compile(r"([A-Za-z_]\w*)\(")
_BUILTIN = {
    kind.__name__: kind
    for kind in (TimeoutError, ConnectionError, ConnectionRefusedError, ConnectionResetError,
                 ConnectionAbortedError, BrokenPipeError)
}  # fmt: skip


def exception_named_by(body: bytes) -> type[Exception] | None:
    """The connection or timeout exception whose ``repr`` an error answer of Gym is; None for any other answer."""
    try:
        text = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    named = _REPR.match(text) if isinstance(text, str) else None
    if named is None:
        return None
    kind = _BUILTIN.get(named[1]) or getattr(aiohttp, named[1], None)
    broken = (aiohttp.ClientConnectionError, ConnectionError, TimeoutError)
    return kind if isinstance(kind, type) and issubclass(kind, broken) else None
