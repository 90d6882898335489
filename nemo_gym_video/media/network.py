# SPDX-License-Identifier: Apache-2.0
"""Opt-in fetching over https. Off unless the policy names hosts; every hop and every address is checked.

The resolver hands the connector only addresses that are public, and the connection's own peer is checked again, so
the address that was checked is the one that is used. Redirects are followed here, one by one, through the same
checks. No cookies, no proxies, no credentials.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection

from nemo_gym_video.errors import MediaDecodeError, MediaSourceError, Where
from nemo_gym_video.media.formats import MediaKind, allowed_types
from nemo_gym_video.media.policy import SourcePolicy
from nemo_gym_video.media.sources import MediaBlob, blob_from_bytes

AddressCheck = Callable[[str], bool]

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_HOPS = 5
_CHUNK = 1 << 16
_OPAQUE_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream"})


def is_public_address(address: str) -> bool:
    """Whether an IP address is on the public internet: no private, loopback, link-local or metadata address.

    An IPv6 address that carries an IPv4 one (mapped, 6to4, Teredo, NAT64) is as good as that one at most.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return is_public_address(str(ip.ipv4_mapped))
        if ip.sixtofour is not None or ip.teredo is not None or ip in _NAT64 or ip in _IPV4_COMPATIBLE:
            return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)


_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_IPV4_COMPATIBLE = ipaddress.ip_network("::/96")


class CheckedConnector(aiohttp.TCPConnector):
    """A connector that resolves only to addresses that ``check`` accepts. ``lookup`` replaces the system's DNS."""

    def __init__(
        self,
        *,
        check: AddressCheck = is_public_address,
        lookup: AbstractResolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Bind the check to a resolver of its own; addresses are not cached between connections."""
        self.check = check
        resolver = _CheckedResolver(lookup or aiohttp.ThreadedResolver(), check)
        super().__init__(resolver=resolver, use_dns_cache=False, ssl=ssl_context or True, force_close=True)

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> Connection:
        """Connect, and check the peer's address before anything is sent to it."""
        connection = await super().connect(req, traces, timeout)
        peer = None if connection.transport is None else connection.transport.get_extra_info("peername")
        if peer is None or not self.check(peer[0]):
            connection.close()
            raise MediaSourceError(
                "connected to an address that is not public", code="media.fetch_refused", got=peer and peer[0]
            )
        return connection


class _CheckedResolver(AbstractResolver):
    def __init__(self, lookup: AbstractResolver, check: AddressCheck) -> None:
        self._lookup = lookup
        self._check = check

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Look ``host`` up; one address that is not allowed refuses the host."""
        found = await self._lookup.resolve(host, port, family)
        for result in found:
            if not self._check(result["host"]):
                raise MediaSourceError(
                    f"host {host} resolves to an address that is not public",
                    code="media.fetch_refused",
                    got=result["host"],
                )
        return found

    async def close(self) -> None:
        """Close the look-up."""
        await self._lookup.close()


def open_session(connector: CheckedConnector | None = None) -> aiohttp.ClientSession:
    """A client session for ``fetch``: checked addresses, no cookies, no proxy from the environment."""
    return aiohttp.ClientSession(
        connector=connector or CheckedConnector(), cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
    )


async def fetch(
    url: str,
    *,
    kind: MediaKind,
    policy: SourcePolicy,
    session: aiohttp.ClientSession,
    where: Where | None = None,
) -> MediaBlob:
    """Fetch ``url`` into memory and let it in as an image or a video. ``session`` is one of ``open_session``.

    Raises:
        MediaSourceError: the policy does not allow the URL, a redirect's target or an address; the server fails.
        MediaDecodeError: the content is empty, too large, or of a format that is not on the list.
    """
    if not isinstance(session.connector, CheckedConnector):
        raise MediaSourceError(
            "session does not check addresses",
            code="media.fetch_refused",
            allowed="a session of open_session",
            where=where,
        )
    connector: CheckedConnector = session.connector
    try:
        async with asyncio.timeout(policy.timeout_s):
            data = await _follow(url, kind, policy, session, connector, where)
    except TimeoutError as error:
        raise MediaSourceError(
            "fetch took too long", code="media.fetch_failed", got=url, allowed=f"{policy.timeout_s} s", where=where
        ) from error
    except aiohttp.ClientError as error:
        raise MediaSourceError(
            f"fetch failed ({type(error).__name__}: {error})", code="media.fetch_failed", got=url, where=where
        ) from error
    return await asyncio.to_thread(blob_from_bytes, data, url=url, kind=kind, where=where)


async def _follow(
    url: str,
    kind: MediaKind,
    policy: SourcePolicy,
    session: aiohttp.ClientSession,
    connector: CheckedConnector,
    where: Where | None,
) -> bytes:
    for _ in range(_MAX_HOPS + 1):
        check_url(url, policy, connector.check, where=where)
        async with session.get(url, allow_redirects=False, headers={"Accept-Encoding": "identity"}) as answer:
            if answer.status not in _REDIRECTS:
                return await _body(answer, kind, policy, where)
            url = urljoin(url, answer.headers.get("Location", ""))
    raise MediaSourceError(
        "too many redirects", code="media.fetch_failed", got=url, allowed=str(_MAX_HOPS), where=where
    )


def check_url(
    url: str, policy: SourcePolicy, check: AddressCheck = is_public_address, *, where: Where | None = None
) -> None:
    """Refuse by name a URL that the policy does not let fetch: its scheme, host, port, credentials, address."""
    if not policy.allow_hosts:
        raise MediaSourceError(
            "the network is off",
            code="media.fetch_refused",
            got=url,
            allowed="allow_hosts in the policy",
            where=where,
        )
    parts, port = _split(url, where)
    if parts.scheme.lower() != "https":
        raise MediaSourceError("only https is fetched", code="media.fetch_refused", got=url, where=where)
    if parts.username is not None or parts.password is not None:
        raise MediaSourceError(
            "URL holds credentials", code="media.fetch_refused", got=parts.hostname, where=where
        )
    host = (parts.hostname or "").rstrip(".")
    allowed = {name.lower() for name in policy.allow_hosts}
    if not host or (host if port in (None, 443) else f"{host}:{port}") not in allowed:
        raise MediaSourceError("host is not on the allow-list", code="media.fetch_refused", got=parts.netloc,
                               allowed=", ".join(sorted(allowed)), where=where)  # fmt: skip
    if _is_literal(host) and not check(host):
        raise MediaSourceError("address is not public", code="media.fetch_refused", got=host, where=where)


def _split(url: str, where: Where | None) -> tuple[SplitResult, int | None]:
    if any(character <= " " or character == "\\" for character in url):
        raise MediaSourceError(
            "URL holds a space, control character or backslash", code="media.fetch_refused", got=url, where=where
        )
    try:
        parts = urlsplit(url)
        return parts, parts.port
    except ValueError as error:
        raise MediaSourceError(
            f"URL is malformed ({error})", code="media.fetch_refused", got=url, where=where
        ) from error


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _body(
    answer: aiohttp.ClientResponse, kind: MediaKind, policy: SourcePolicy, where: Where | None
) -> bytes:
    if answer.status != 200:
        raise MediaSourceError(
            "server does not answer with the media", code="media.fetch_failed", got=answer.status, where=where
        )
    declared = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if declared not in _OPAQUE_TYPES and declared not in allowed_types(kind):
        raise MediaSourceError(f"server declares no {kind}", code="media.fetch_failed", got=declared,
                               allowed=", ".join(allowed_types(kind)), where=where)  # fmt: skip
    limit = min(policy.limits.max_data_bytes,
                policy.limits.max_image_bytes if kind == "image" else policy.limits.max_bytes)  # fmt: skip
    data = bytearray()
    async for chunk in answer.content.iter_chunked(_CHUNK):
        data += chunk
        if len(data) > limit:
            raise MediaDecodeError(
                "media is too large",
                code="media.too_large",
                got=f"over {limit} bytes",
                allowed=f"{limit} bytes",
                where=where,
            )
    return bytes(data)
