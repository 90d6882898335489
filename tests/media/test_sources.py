# SPDX-License-Identifier: Apache-2.0
"""Each rule of the source policy has a test that tries to get around it, for images and for videos."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from nemo_gym_video.errors import MediaDecodeError, MediaSourceError, NemoGymVideoError, Where
from nemo_gym_video.media.policy import MediaLimits, SourcePolicy
from nemo_gym_video.media.sources import MediaSources, trusted_sources

Kind = Literal["image", "video"]
KINDS: tuple[Kind, ...] = ("image", "video")


@pytest.fixture
def root(tmp_path: Path, make_clip: Callable[..., Path], picture: Any) -> Path:
    """A media root with ``image.png`` and ``video.mp4``, beside a folder ``outside`` with the same."""
    clip = make_clip("plain.mp4").read_bytes()
    for name in ("root", "outside", "root-sibling"):
        (tmp_path / name).mkdir()
        Image.fromarray(picture).save(tmp_path / name / "image.png")
        (tmp_path / name / "video.mp4").write_bytes(clip)
    return tmp_path / "root"


@pytest.fixture
def sources(root: Path) -> MediaSources:
    return MediaSources(SourcePolicy((root,)))


def name_of(kind: Kind) -> str:
    return "image.png" if kind == "image" else "video.mp4"


def data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64," + base64.b64encode(data).decode()


@pytest.mark.parametrize("kind", KINDS)
def test_path_uri_and_data_url_of_one_content_have_one_digest(
    sources: MediaSources, root: Path, kind: Kind
) -> None:
    file = root / name_of(kind)
    data = file.read_bytes()
    media_type = "image/png" if kind == "image" else "video/mp4"
    urls = [file.name, str(file), file.as_uri(), "file:" + str(file), data_url(data, media_type)]
    blobs = [sources.open(url, kind=kind) for url in urls]
    assert {blob.digest for blob in blobs} == {"sha256:" + hashlib.sha256(data).hexdigest()}
    assert {blob.size_bytes for blob in blobs} == {len(data)}
    assert {blob.media_type for blob in blobs} == {media_type}
    assert all(blob.read_bytes() == data for blob in blobs)
    assert [blob.path for blob in blobs] == [file, file, file, file, None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("../outside/{name}", "climbs"),
        ("sub/../../outside/{name}", "climbs"),
        ("sub/../{name}", "climbs"),
        ("{root}/../outside/{name}", "climbs"),
        ("file://{root}/../outside/{name}", "climbs"),
        ("file://{root}/%2e%2e/outside/{name}", "climbs"),
        ("file://{root}/%2E%2e/outside/{name}", "climbs"),
        ("file://{root}/.%2e/outside/{name}", "climbs"),
        ("file://{root}/%252e%252e/outside/{name}", "climbs"),
        ("%2e%2e/outside/{name}", "climbs"),
        ("file://{root}%2f..%2foutside%2f{name}", "climbs"),
        ("{outside}/{name}", "outside the media roots"),
        ("file://{outside}/{name}", "outside the media roots"),
        ("{root}-sibling/{name}", "outside the media roots"),
        ("file://localhost{root}/{name}", "names a host"),
        ("file://evil.example/{root}/{name}", "names a host"),
        ("file://127.0.0.1{root}/{name}", "names a host"),
        ("FILE://evil.example{root}/{name}", "names a host"),
        ("file:{name}", "not absolute"),
        ("file://{root}/{name}?x=1", "query or fragment"),
        ("file://{root}/{name}#t=1", "query or fragment"),
        ("file://{root}/%zz{name}", "malformed escape"),
        ("file://{root}/%", "malformed escape"),
        ("{root}/{name}\x00.png", "NUL"),
        ("file://{root}/{name}%00.png", "NUL"),
        ("http://example.org/{name}", "http URLs are not opened"),
        ("HTTPS://example.org/{name}", "https URLs are not opened"),
        ("ftp://example.org/{name}", "ftp URLs are not opened"),
        ("s3://bucket/{name}", "s3 URLs are not opened"),
        ("concat://{root}/{name}", "concat URLs are not opened"),
        ("concat:{root}/{name}", "cannot be opened"),
        ("//example.org/{name}", "outside the media roots"),
        (" {root}/{name}", "cannot be opened"),
        ("missing-{name}", "cannot be opened"),
        ("{name}/{name}", "cannot be opened"),
        ("", "empty"),
        (".", "outside the media roots"),
        ("{root}", "outside the media roots"),
        ("x" * 5000, "cannot be opened"),
        ("\ud800{name}", "no valid file name"),
        ("file://{root}/\ud800{name}", "no valid file name"),
    ],
)
def test_references_that_are_refused_by_name(
    sources: MediaSources, root: Path, kind: Kind, template: str, problem: str
) -> None:
    name = name_of(kind)
    url = template.replace("{root}", str(root)).replace("{outside}", str(root.parent / "outside"))
    url = url.replace("{name}", name)
    with pytest.raises(MediaSourceError, match=problem):
        sources.open(url, kind=kind, where=Where(row=3))
    with pytest.raises(MediaSourceError, match=problem):
        sources.local_path(url)


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_says_where(sources: MediaSources, kind: Kind) -> None:
    with pytest.raises(MediaSourceError, match=r"^rows.jsonl:4, message 0, part 1: "):
        sources.open("../x", kind=kind, where=Where(file="rows.jsonl", line=4, message=0, part=1))


@pytest.mark.parametrize("kind", KINDS)
def test_links_that_leave_the_root_are_refused(sources: MediaSources, root: Path, kind: Kind) -> None:
    name = name_of(kind)
    outside = root.parent / "outside"
    (root / "link").symlink_to(outside / name)
    (root / "folder").symlink_to(outside)
    (root / "chain").symlink_to("link")
    (root / "relative").symlink_to(f"../outside/{name}")
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to(outside / "missing")
    for path in ("link", f"folder/{name}", "chain", "relative", "dangling"):
        with pytest.raises(MediaSourceError, match="outside the media roots"):
            sources.open(path, kind=kind)
    with pytest.raises(MediaSourceError, match="path is a symlink"):
        sources.open("loop", kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_links_inside_the_root_and_linked_roots_work(sources: MediaSources, root: Path, kind: Kind) -> None:
    name = name_of(kind)
    (root / "sub").mkdir()
    (root / "sub" / "link").symlink_to(root / name)
    assert sources.open("sub/link", kind=kind).path == root / name
    alias = root.parent / "alias"
    alias.symlink_to(root)
    through = MediaSources(SourcePolicy((alias,)))
    for url in (name, str(alias / name), str(root / name), (alias / name).as_uri()):
        assert through.open(url, kind=kind).path == root / name


@pytest.mark.parametrize("kind", KINDS)
def test_special_files_are_refused_by_name_and_never_block(sources: MediaSources, root: Path, kind: Kind) -> None:
    os.mkfifo(root / "fifo")
    (root / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(root / "socket"))
        for name, kind_name in (("fifo", "FIFO"), ("folder", "folder"), ("socket", "socket")):
            done: list[str] = []
            thread = threading.Thread(
                target=lambda name=name, done=done: done.append(refusal(sources, name, kind))
            )
            thread.start()
            thread.join(5)
            assert not thread.is_alive()
            assert f"path is a {kind_name}" in done[0]


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/stdin", "/proc/self/mem", "/dev/fd/0"])
def test_devices_are_refused_even_below_a_root(device: str) -> None:
    sources = trusted_sources()
    for kind in KINDS:
        with pytest.raises(NemoGymVideoError):
            sources.open(device, kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_swapped_between_check_and_open_does_not_lead_out(
    sources: MediaSources, root: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = name_of(kind)
    (root / "sub").mkdir()
    (root / name).rename(root / "sub" / name)
    real = os.path.realpath

    def swap(path: Any, **how: Any) -> str:
        found = str(real(path, **how))
        if found.endswith(f"sub/{name}") and not (root / "sub").is_symlink():
            (root / "sub").rename(root / "was")
            (root / "sub").symlink_to(root.parent / "outside")
        return found

    monkeypatch.setattr(os.path, "realpath", swap)
    with pytest.raises(MediaSourceError, match="left the media roots while it was opened"):
        sources.open(f"sub/{name}", kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_changed_after_it_was_let_in_is_refused(sources: MediaSources, root: Path, kind: Kind) -> None:
    file = root / name_of(kind)
    blob = sources.open(file.name, kind=kind)
    file.write_bytes(file.read_bytes()[::-1])
    with pytest.raises(MediaSourceError, match="changed after it was checked"):
        blob.read_bytes()
    file.unlink()
    file.symlink_to(root.parent / "outside" / file.name)
    with pytest.raises(MediaSourceError):
        blob.read_bytes()


def test_the_digest_follows_the_content_not_the_cache(sources: MediaSources, root: Path, picture: Any) -> None:
    before = sources.open("image.png", kind="image")
    assert sources.open("image.png", kind="image").digest == before.digest
    status = (root / "image.png").stat()
    changed = bytearray((root / "image.png").read_bytes())
    changed[-20] ^= 1
    (root / "image.png").write_bytes(bytes(changed))
    os.utime(root / "image.png", ns=(status.st_atime_ns, status.st_mtime_ns))
    after = sources.open("image.png", kind="image")
    assert after.digest == "sha256:" + hashlib.sha256(changed).hexdigest() != before.digest


ODD_NAMES = ["with space.x", "100%.x", "a%41b.x", "%2e.x", "hash#1.x", "ques?.x", "quo\"te's.x", "naïve-日本.x",
             "new\nline.x", "semi;colon.x", "back\\slash.x", "colon: two.x", "...x", "-rf.x", "~.x"]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("odd", ODD_NAMES)
def test_odd_file_names_work_plain_and_as_uri(sources: MediaSources, root: Path, kind: Kind, odd: str) -> None:
    data = (root / name_of(kind)).read_bytes()
    (root / odd).write_bytes(data)
    for url in (odd, str(root / odd), (root / odd).as_uri()):
        assert sources.open(url, kind=kind).path == root / odd


def test_file_names_that_are_no_utf8_work(sources: MediaSources, root: Path) -> None:
    name = os.fsdecode(b"latin-\xe9.png")
    (root / "image.png").rename(root / name)
    for url in (name, str(root / name), (root / name).as_uri()):
        assert sources.open(url, kind="image").path == root / name


def test_a_plain_path_is_not_percent_decoded(sources: MediaSources, root: Path) -> None:
    assert sources.open((root / "image.png").as_uri().replace("image", "%69mage"), kind="image")
    with pytest.raises(MediaSourceError):
        sources.open("%69mage.png", kind="image")


def test_relative_paths_take_the_first_root_that_has_them(root: Path) -> None:
    outside = root.parent / "outside"
    (outside / "image.png").rename(outside / "only-here.png")
    sources = MediaSources(SourcePolicy((root, outside)))
    assert sources.open("image.png", kind="image").path == root / "image.png"
    assert sources.open("only-here.png", kind="image").path == outside / "only-here.png"


def test_a_refused_relative_path_is_not_retried_in_the_next_root(root: Path) -> None:
    (root / "only.png").symlink_to("/etc/hostname")
    (root.parent / "outside" / "image.png").rename(root.parent / "outside" / "only.png")
    with pytest.raises(MediaSourceError, match="outside the media roots"):
        MediaSources(SourcePolicy((root, root.parent / "outside"))).open("only.png", kind="image")


def test_no_roots_means_no_files_but_data_urls(root: Path) -> None:
    sources = MediaSources(SourcePolicy())
    with pytest.raises(MediaSourceError, match="no media root is configured"):
        sources.open(str(root / "image.png"), kind="image")
    assert sources.open(data_url((root / "image.png").read_bytes(), "image/png"), kind="image").data


def test_a_root_must_be_a_folder(root: Path) -> None:
    for bad, problem in ((root / "missing", "does not exist"), (root / "image.png", "no folder")):
        with pytest.raises(MediaSourceError, match=problem):
            MediaSources(SourcePolicy((bad,)))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("data:image/png;base64,iVBORw0KGgo", "strict base64"),
        ("data:image/png;base64,iVBORw0KGgo=\n", "strict base64"),
        ("data:image/png;base64,iVBO Rw0KGgo=", "strict base64"),
        ("data:image/png;base64,iVBORw0KGgo=iVBO", "strict base64"),
        ("data:image/png;base64,_-BORw0KGgo=", "strict base64"),
        ("data:image/png;base64,%69VBORw0KGgo=", "strict base64"),
        ("data:image/png;base64,日本", "strict base64"),
        ("data:image/png,raw", "not base64"),
        ("data:,raw", "not base64"),
        ("data:image/png;base64", "no comma"),
        ("data:" + "a" * 300 + ",x", "no comma"),
        ("data:text/html;base64,PGI+", "does not declare an image"),
        ("data:video/mp4;base64,AAAA", "does not declare an image"),
        ("data:image/svg+xml;base64,PHN2Zz4=", "does not declare an image"),
        ("data:video/x-nemo-rl-cached-frames;base64,AAAA", "manifest"),
    ],
)
def test_data_urls_that_are_refused(sources: MediaSources, url: str, problem: str) -> None:
    with pytest.raises(MediaSourceError, match=problem):
        sources.open(url, kind="image")
    with pytest.raises(MediaSourceError, match="has no path"):
        sources.local_path(url)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "no image format"),
        (b"#EXTM3U\nhttp://example.org/x.ts\n", "no image format"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "no image format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "no image format"),
        (b"%PDF-1.4", "no image format"),
        (b"MZ\x90\x00" + bytes(64), "no image format"),
        (b"\x00\x00\x00\x1cftypavif" + bytes(32), "image/avif"),
        (b"\x00\x00\x00\x1cftypheic" + bytes(32), "image/heic"),
    ],
)
def test_content_decides_not_names_or_declared_types(
    sources: MediaSources, root: Path, content: bytes, problem: str
) -> None:
    (root / "claims.png").write_bytes(content)
    for url in ("claims.png", data_url(content, "image/png")):
        with pytest.raises(MediaDecodeError, match=problem):
            sources.open(url, kind="image")
    (root / "claims.mp4").write_bytes(content)
    with pytest.raises(MediaDecodeError):
        sources.open("claims.mp4", kind="video")


def test_a_video_is_no_image_and_the_reverse(sources: MediaSources) -> None:
    with pytest.raises(MediaDecodeError, match="no image format"):
        sources.open("video.mp4", kind="image")
    with pytest.raises(MediaDecodeError, match="no video format"):
        sources.open("image.png", kind="video")


def test_size_limits_come_before_content(root: Path) -> None:
    image, video = (root / "image.png").stat().st_size, (root / "video.mp4").stat().st_size
    exact = MediaLimits(max_image_bytes=image, max_bytes=video, max_data_bytes=image)
    under = MediaLimits(max_image_bytes=image - 1, max_bytes=video - 1, max_data_bytes=image - 1)
    url = data_url((root / "image.png").read_bytes(), "image/png")
    sources = MediaSources(SourcePolicy((root,), exact))
    assert sources.open("image.png", kind="image").size_bytes == image
    assert sources.open("video.mp4", kind="video").size_bytes == video
    assert sources.open(url, kind="image").size_bytes == image
    sources = MediaSources(SourcePolicy((root,), under))
    for name, kind in (("image.png", KINDS[0]), ("video.mp4", KINDS[1])):
        with pytest.raises(MediaDecodeError, match="too large"):
            sources.open(name, kind=kind)
    huge = "data:image/png;base64," + "A" * (4 * image)
    with pytest.raises(MediaDecodeError, match="too large"):
        sources.open(huge, kind="image")
    assert len(repr(MediaSources(SourcePolicy((root,), exact)).open(url, kind="image"))) < 300


def test_a_sparse_file_of_terabytes_is_refused_at_once(sources: MediaSources, root: Path) -> None:
    with (root / "image.png").open("r+b") as file:
        file.truncate(1 << 40)
    for kind in KINDS:
        with pytest.raises(MediaDecodeError, match="too large"):
            sources.open("image.png", kind=kind)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60), st.sampled_from(KINDS))
def test_no_string_opens_anything_outside_or_crashes(text: str, kind: Kind) -> None:
    sources = _empty_sources()
    for url in (text, "file://" + text, "data:" + text, "file:///" + text, "/" + text, "../" + text):
        with pytest.raises(NemoGymVideoError):
            sources.open(url, kind=kind)


def _empty_sources() -> MediaSources:
    folder = Path(__file__).parent / "__pycache__"
    folder.mkdir(exist_ok=True)
    return MediaSources(SourcePolicy((folder,)))


def refusal(sources: MediaSources, url: str, kind: Kind) -> str:
    try:
        sources.open(url, kind=kind)
    except MediaSourceError as error:
        return str(error)
    return "opened"


def test_threads_share_one_source(sources: MediaSources) -> None:
    digests: list[str] = []
    threads = [
        threading.Thread(target=lambda: digests.append(sources.open("video.mp4", kind="video").digest))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(digests) == 16
    assert len(set(digests)) == 1


def test_read_bytes_of_a_data_blob_is_its_data(sources: MediaSources, picture: Any) -> None:
    pixels = np.asarray(picture)
    assert pixels.shape == (40, 60, 3)
    blob = sources.open("image.png", kind="image")
    assert blob.data is None
    assert "image.png" in repr(blob)
