# SPDX-License-Identifier: Apache-2.0
"""A media error's reason comes from its code, whatever its words are."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemo_gym_video.errors import ERROR_CODES, MediaDecodeError, MediaSourceError, Where
from nemo_gym_video.media.sources import trusted_sources
from nemo_gym_video.prepare.opening import opened_clip, reason_of, refusal_of
from nemo_gym_video.prepare.outcome import REASONS, Refusal


def opening(path: Path) -> Refusal:
    with pytest.raises(Refusal) as caught, opened_clip(trusted_sources(), str(path), where=Where(row=0)):
        pass
    return caught.value


def test_a_file_name_of_300_characters_is_not_a_file_that_is_too_large(tmp_path: Path) -> None:
    assert opening(tmp_path / ("a" * 300)).reason == "refused"


def test_names_made_of_the_words_of_other_problems(tmp_path: Path) -> None:
    assert opening(tmp_path / "too large too many no video stream.mp4").reason == "missing"
    (tmp_path / "No such file.mp4").write_text("text")
    assert opening(tmp_path / "No such file.mp4").reason == "no_video_stream"
    (tmp_path / "too long.mp4").mkdir()
    assert opening(tmp_path / "too long.mp4").reason == "refused"


def test_a_file_below_a_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert opening(tmp_path / "a" / "b.mp4").reason == "missing"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("media.missing", "missing"),
        ("media.type", "no_video_stream"),
        ("media.no_video_stream", "no_video_stream"),
        ("media.no_frames", "no_frames"),
        ("media.too_large", "too_large"),
        ("media.codec", "unreadable"),
    ],
)
def test_codes_decide(code: str, reason: str) -> None:
    assert reason_of(MediaDecodeError("No such file, too large, no video stream", code=code)) == reason


def test_every_media_code_has_a_reason() -> None:
    codes = [code for code in ERROR_CODES if code.startswith("media.")]
    assert {reason_of(MediaSourceError("x", code=code)) for code in codes} <= set(REASONS)


def test_the_refusal_keeps_the_place_and_the_words() -> None:
    refusal = refusal_of(MediaDecodeError("x", got=1, allowed="2", where=Where(row=3)))
    assert (refusal.reason, str(refusal)) == ("unreadable", "row 3: x; got 1; allowed: 2")
