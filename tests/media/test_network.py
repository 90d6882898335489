# SPDX-License-Identifier: Apache-2.0
"""Fetching, on the loopback only: a resolver knows made-up hosts, and a check takes one address for public."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym_video.errors import MediaDecodeError, MediaSourceError
from nemo_gym_video.media.network import CheckedConnector, check_url, fetch, is_public_address, open_session
from nemo_gym_video.media.policy import MediaLimits, SourcePolicy
from nemo_gym_video.media.sources import MediaBlob

PUBLIC = "127.0.0.1"
PRIVATE = "127.0.0.2"
HOST = "media.test"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate and its key for the made-up hosts, signed by itself, for one day."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "media.test")])
    now = datetime.datetime.now(datetime.UTC)
    hosts = [x509.DNSName(host) for host in (HOST, "other.test", "inside.test")]
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([*hosts, x509.IPAddress(ipaddress.ip_address(PUBLIC))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + built.public_bytes(serialization.Encoding.PEM))
    return path


class Names(AbstractResolver):
    """DNS of the tests: each host has a list of answers, one a look-up, the last one for good."""

    def __init__(self, answers: dict[str, list[str]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        answers = self.answers[host]
        address = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            ResolveResult(hostname=host, host=one, port=port, family=socket.AF_INET, proto=0, flags=0)
            for one in address.split(",")
        ]

    async def close(self) -> None:
        pass


class Site:
    """One https server on all loopback addresses, and what was asked of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.requests: list[str] = []
        self.headers: list[Any] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.host.partition(':')[0]}{request.path_qs}")
        self.headers.append(request.headers)
        name = request.path.strip("/")
        if name == "redirect":
            raise web.HTTPFound(request.query["to"])
        if name == "loop":
            raise web.HTTPFound("/loop")
        if name == "slow":
            await asyncio.sleep(30)
        if name == "endless":
            stream = web.StreamResponse(headers={"Content-Type": "image/png"})
            await stream.prepare(request)
            for _ in range(10_000):
                await stream.write(bytes(1 << 16))
            return stream
        if name == "missing":
            raise web.HTTPNotFound
        if name == "page":
            return web.Response(body=self.data, content_type="text/html")
        if name == "lies":
            return web.Response(body=b"<html>", content_type="image/png")
        return web.Response(body=self.data, content_type="image/png")


@asynccontextmanager
async def serve(certificate: Path, data: bytes) -> AsyncIterator[Site]:
    site = Site(data)
    app = web.Application()
    app.router.add_get("/{name}", site.answer)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    server = web.TCPSite(runner, "0.0.0.0", 0, ssl_context=context)
    await server.start()
    site.port = runner.addresses[0][1]
    try:
        yield site
    finally:
        await runner.cleanup()


Get = Callable[..., Awaitable[MediaBlob]]


@pytest.fixture
def run(certificate: Path, picture: Any, make_clip: Any) -> Callable[..., Any]:
    """Run a coroutine function with (site, get) where ``get(url, …)`` fetches under a policy of the tests."""
    import io

    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")

    def runner(
        work: Callable[[Site, Get], Awaitable[Any]], *, names: dict[str, list[str]] | None = None, **policy: Any
    ) -> Any:
        async def main() -> Any:
            async with serve(certificate, buffer.getvalue()) as site:
                hosts = tuple(
                    f"{host}:{site.port}" for host in policy.pop("hosts", (HOST, "other.test", "inside.test"))
                )
                rules = SourcePolicy(allow_hosts=hosts, **policy)
                lookup = Names(names or {HOST: [PUBLIC], "other.test": [PUBLIC], "inside.test": [PRIVATE]})
                connector = CheckedConnector(
                    check=lambda address: address == PUBLIC,
                    lookup=lookup,
                    ssl_context=ssl.create_default_context(cafile=str(certificate)),
                )
                async with open_session(connector) as session:

                    async def get(url: str, kind: Any = "image") -> MediaBlob:
                        return await fetch(
                            url.replace("PORT", str(site.port)), kind=kind, policy=rules, session=session
                        )

                    return await work(site, get)

        return asyncio.run(main())

    return runner


def test_a_listed_host_is_fetched(run: Callable[..., Any]) -> None:
    async def work(site: Site, get: Get) -> None:
        blob = await get(f"https://{HOST}:PORT/image.png")
        assert blob.data == site.data
        assert blob.media_type == "image/png"
        assert blob.path is None
        assert "Cookie" not in site.headers[0]
        assert "Authorization" not in site.headers[0]

    run(work)


def test_redirects_within_the_list_are_followed(run: Callable[..., Any]) -> None:
    async def work(site: Site, get: Get) -> None:
        target = f"https://other.test:{site.port}/image.png"
        assert (await get(f"https://{HOST}:PORT/redirect?to={target}")).data == site.data
        assert (await get(f"https://{HOST}:PORT/redirect?to=/image.png")).data == site.data

    run(work)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("http://media.test:PORT/image.png", "only https"),
        ("https://evil.test:PORT/image.png", "not on the allow-list"),
        ("https://media.test/image.png", "not on the allow-list"),
        ("https://media.test:1/image.png", "not on the allow-list"),
        ("https://user:secret@media.test:PORT/image.png", "credentials"),
        ("https://127.0.0.1:PORT/image.png", "not on the allow-list"),
        ("https://[::1]:PORT/image.png", "not on the allow-list"),
        ("https://169.254.169.254/latest/meta-data", "not on the allow-list"),
        ("https://media.test:PORT@evil.test/image.png", "credentials"),
        ("https://media.test:PORT%2f@evil.test/image.png", "credentials"),
        ("https://evil.test#@media.test:PORT/", "not on the allow-list"),
        ("file:///etc/passwd", "only https"),
        ("ftp://media.test:PORT/image.png", "only https"),
        ("data:image/png;base64,AAAA", "only https"),
        ("https://inside.test:PORT/image.png", "resolves to an address that is not public"),
    ],
)
@pytest.mark.parametrize("hop", [0, 1])
def test_refused_targets_are_refused_at_first_and_after_a_redirect(
    run: Callable[..., Any], target: str, problem: str, hop: int
) -> None:
    async def work(site: Site, get: Get) -> None:
        from urllib.parse import quote

        url = target.replace("PORT", str(site.port))
        if hop:
            url = f"https://{HOST}:{site.port}/redirect?to={quote(url, safe='')}"
        with pytest.raises(MediaSourceError, match=problem):
            await get(url)
        assert len(site.requests) == hop

    run(work)


def test_a_literal_address_on_the_list_is_still_checked(run: Callable[..., Any]) -> None:
    async def work(site: Site, get: Get) -> None:
        assert (await get(f"https://{PUBLIC}:PORT/image.png")).data == site.data
        with pytest.raises(MediaSourceError, match="address is not public"):
            await get(f"https://{PRIVATE}:PORT/image.png")
        assert len(site.requests) == 1

    run(work, hosts=(PUBLIC, PRIVATE))


def test_a_host_with_one_bad_address_among_good_ones_is_refused(run: Callable[..., Any]) -> None:
    async def work(site: Site, get: Get) -> None:
        with pytest.raises(MediaSourceError, match="not public"):
            await get(f"https://{HOST}:PORT/image.png")
        assert site.requests == []

    run(work, names={HOST: [f"{PUBLIC},{PRIVATE}"]})


def test_a_name_that_changes_its_address_between_look_ups_is_caught(run: Callable[..., Any]) -> None:
    async def work(site: Site, get: Get) -> None:
        assert (await get(f"https://{HOST}:PORT/image.png")).data == site.data
        with pytest.raises(MediaSourceError, match="not public"):
            await get(f"https://{HOST}:PORT/image.png")
        assert len(site.requests) == 1

    run(work, names={HOST: [PUBLIC, PRIVATE]})


def test_the_connection_itself_is_checked_before_anything_is_sent(
    run: Callable[..., Any], certificate: Path
) -> None:
    async def main() -> None:
        async with serve(certificate, b"x") as site:
            answers = iter([True])
            connector = CheckedConnector(
                # Good for the resolver, not for the connection: what a resolver was told cannot be trusted alone.
                check=lambda address: next(answers, False),
                lookup=Names({HOST: [PUBLIC]}),
                ssl_context=ssl.create_default_context(cafile=str(certificate)),
            )
            policy = SourcePolicy(allow_hosts=(f"{HOST}:{site.port}",))
            async with open_session(connector) as session:
                with pytest.raises(MediaSourceError, match="connected to an address that is not public"):
                    await fetch(f"https://{HOST}:{site.port}/x", kind="image", policy=policy, session=session)
            assert site.requests == []

    asyncio.run(main())


def test_limits_on_size_time_type_status_and_hops(run: Callable[..., Any]) -> None:
    async def work(site: Site, get: Get) -> None:
        with pytest.raises(MediaDecodeError, match="too large"):
            await get(f"https://{HOST}:PORT/endless")
        with pytest.raises(MediaSourceError, match="took too long"):
            await get(f"https://{HOST}:PORT/slow")
        with pytest.raises(MediaSourceError, match="declares no image; got 'text/html'"):
            await get(f"https://{HOST}:PORT/page")
        with pytest.raises(MediaDecodeError, match="no image format"):
            await get(f"https://{HOST}:PORT/lies")
        with pytest.raises(MediaSourceError, match="declares no video"):
            await get(f"https://{HOST}:PORT/image.png", "video")
        with pytest.raises(MediaSourceError, match="got 404"):
            await get(f"https://{HOST}:PORT/missing")
        before = len(site.requests)
        with pytest.raises(MediaSourceError, match="too many redirects"):
            await get(f"https://{HOST}:PORT/loop")
        assert len(site.requests) - before == 6

    run(work, limits=MediaLimits(max_image_bytes=1 << 20), timeout_s=1.0)


def test_the_network_is_off_by_default(run: Callable[..., Any]) -> None:
    async def work(site: Site, get: Get) -> None:
        with pytest.raises(MediaSourceError, match="network is off"):
            await get(f"https://{HOST}:PORT/image.png")
        assert site.requests == []

    run(work, hosts=())


def test_a_session_that_checks_nothing_is_refused() -> None:
    async def main() -> None:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(MediaSourceError, match="does not check addresses"):
                await fetch("https://a.test/x", kind="image", policy=SourcePolicy(allow_hosts=("a.test",)),
                            session=session)  # fmt: skip

    asyncio.run(main())


def test_an_untrusted_certificate_is_refused(certificate: Path) -> None:
    async def main() -> None:
        async with serve(certificate, b"x") as site:
            connector = CheckedConnector(check=lambda address: True, lookup=Names({HOST: [PUBLIC]}))
            async with open_session(connector) as session:
                policy = SourcePolicy(allow_hosts=(f"{HOST}:{site.port}",))
                with pytest.raises(MediaSourceError, match="fetch failed"):
                    await fetch(f"https://{HOST}:{site.port}/x", kind="image", policy=policy, session=session)
            assert site.requests == []

    asyncio.run(main())


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
     "255.255.255.255", "192.0.0.1", "192.0.2.1", "198.18.0.1", "240.0.0.1", "::1", "::", "fe80::1",
     "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
     "::ffff:169.254.169.254",
     "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:0:7f00:1::", "2001:db8::1",
     "not an address", "", "127.1", "0x7f000001", "2130706433"],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public_address(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_addresses_that_are_public(address: str) -> None:
    assert is_public_address(address)


@given(st.text(max_size=80))
def test_no_url_but_a_listed_one_passes(text: str) -> None:
    policy = SourcePolicy(allow_hosts=("listed.test",))
    for url in (text, "https://" + text, f"https://listed.test.{text}", f"https://{text}@listed.test/"):
        try:
            check_url(url, policy)
        except MediaSourceError:
            continue
        host = url.removeprefix("https://")[: len("listed.test")]
        assert host.lower() == "listed.test"


@pytest.mark.parametrize(
    "url",
    ["https://listed.test\\@evil.test/", "https://listed.test /", "https://listed.test\t/", "https://listed.test\n/",
     "https://[::1", "https://listed.test:port/", "https://listed.test:99999/", "https://listed.test:443:443/",
     "https://", "https:///x", "//listed.test/x", "https:listed.test/x"],
)  # fmt: skip
def test_malformed_urls_are_refused(url: str) -> None:
    with pytest.raises(MediaSourceError):
        check_url(url, SourcePolicy(allow_hosts=("listed.test",)))


def test_host_names_match_whatever_their_case_and_final_dot() -> None:
    policy = SourcePolicy(allow_hosts=("Listed.test",))
    for url in (
        "https://LISTED.TEST/x",
        "https://listed.test./x",
        "https://listed.test:443/x",
        "HTTPS://listed.test",
    ):
        check_url(url, policy)
