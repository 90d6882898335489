# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import Any

import pytest

from nemo_gym_video.errors import RowError
from nemo_gym_video.tasks.observation import turns_of
from nemo_gym_video.tasks.sav_stream.stream import StreamEpisode, StreamRow, score_stream
from nemo_gym_video.tasks.task import Answer
from nemo_gym_video.tasks.tracking.scoring import score_tracks

# One point on a 10 x 10 frame whose mask is the whole frame: any grid point is inside.
FULL = {"size": [10, 10], "counts": [0, 100]}


def row(frames: int = 9, chunk: int = 3, late: int | None = None) -> dict[str, Any]:
    def targets(start: int) -> list[dict[str, Any]]:
        return [
            {"frame": frame, "visible": True, "xy": [500, 500], "mask": FULL} for frame in range(start, frames)
        ]

    objects = [{"id": 1, "reference_frame": 0, "reference_xy": [500, 500], "targets": targets(1)}]
    if late is not None:
        objects.append({"id": 2, "reference_frame": late, "reference_xy": [10, 20], "targets": targets(late + 1)})
    return {
        "task": "pt",
        "reference_frame": 0,
        "coordinate_space": "grid1000",
        "objects": objects,
        "stream": {"frames": [f"{index}.jpg" for index in range(frames)], "chunk": chunk},
    }


def says(*frames: int, point: int = 1, visible: bool = True) -> dict[str, Any]:
    tracks = [
        {"point": point, "frame": frame, "xy": [500, 500] if visible else None, "visible": visible}
        for frame in frames
    ]
    text = f"<answer>{json.dumps({'tracks': tracks})}</answer>"
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "next"}]}


def test_chunks_cover_every_frame_once() -> None:
    stream = StreamRow.from_row(row(frames=9, chunk=3))
    assert [list(chunk) for chunk in stream.chunks] == [[0, 1, 2, 3], [4, 5, 6], [7, 8]]


def test_text_referred_rows_start_at_frame_one_without_a_reference() -> None:
    one = row(frames=4, chunk=3)
    one["task"] = "ref"
    stream = StreamRow.from_row(one)
    assert [list(chunk) for chunk in stream.chunks] == [[1, 2, 3], [4]]


def test_an_episode_hands_out_all_frames_and_ends() -> None:
    episode = StreamEpisode(StreamRow.from_row(row()))
    observations = [episode.begin()]
    while not observations[-1].done:
        observations.append(episode.step(Answer([says(1)])))
    images = [part["image_url"] for one in observations for part in one.parts if part["type"] == "input_image"]
    assert images == [f"{index}.jpg" for index in range(9)]
    assert observations[-1].reason == "all_frames_seen"
    labels = [part["text"] for part in observations[1].parts if part["type"] == "input_text"]
    assert labels == ["Frame 4:", "Frame 5:", "Frame 6:", "Now answer for frames 4 to 6 only."]
    assert observations[0].parts[-1]["text"] == "Now answer for frames 1 to 3 only."


def test_a_point_that_enters_late_is_announced_with_its_chunk() -> None:
    episode = StreamEpisode(StreamRow.from_row(row(late=5)))
    assert "New:" not in episode.begin().parts[-1]["text"]
    assert "New: point 2 at (10, 20) in frame 5." in episode.step(Answer([])).parts[-1]["text"]


def test_right_answers_in_every_chunk_earn_everything() -> None:
    output = [says(1, 2, 3), USER, says(4, 5, 6), USER, says(7, 8)]
    result = score_stream(output, row())
    assert result.track.reward == 1.0
    assert [chunk.mean for chunk in result.chunks] == [1.0, 1.0, 1.0]
    assert [chunk.frames for chunk in result.chunks] == [(0, 3), (4, 6), (7, 8)]


def test_the_score_is_that_of_one_answer_over_the_whole_clip() -> None:
    output = [says(1, 2), USER, says(4, 5, 6, visible=False), USER, says(7, 8)]
    merged = [says(1, 2)["content"][0]["text"], says(4, 5, 6, visible=False)["content"][0]["text"]]
    entries = [entry for text in merged for entry in json.loads(text[8:-9])["tracks"]]
    entries += json.loads(says(7, 8)["content"][0]["text"][8:-9])["tracks"]
    whole = score_tracks(f"<answer>{json.dumps({'tracks': entries})}</answer>", row())
    assert score_stream(output, row()).track.reward == pytest.approx(whole.reward)
    assert 0 < whole.reward < 1


def test_frames_of_other_chunks_are_extras_and_earn_nothing() -> None:
    early = score_stream([says(1, 2, 3, 4, 5, 6, 7, 8)], row())
    assert early.track.extras == 5
    assert early.track.reward == pytest.approx(3 / 8 * 8 / 13)
    assert [chunk.reason for chunk in early.chunks] == ["scored", "not_reached", "not_reached"]


def test_a_refused_chunk_costs_its_own_cells_only() -> None:
    bad = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "<answer>{</answer>"}],
    }
    result = score_stream([says(1, 2, 3), USER, bad, USER, says(7, 8)], row())
    assert result.track.reward == pytest.approx(5 / 8)
    assert [chunk.reason for chunk in result.chunks] == ["scored", "not_json", "scored"]
    assert result.chunks[1].mean == 0.0


def test_an_empty_turn_keeps_the_later_ones_in_place() -> None:
    result = score_stream([says(1, 2, 3), USER, USER, says(7, 8)], row())
    assert [chunk.reason for chunk in result.chunks] == ["scored", "empty", "scored"]


def test_turns_are_split_at_user_messages_only() -> None:
    reasoning = {"type": "reasoning", "summary": []}
    call = {"type": "function_call", "name": "clip", "arguments": "{}", "call_id": "c"}
    tool = {"type": "function_call_output", "call_id": "c", "output": "see below"}
    assert turns_of([reasoning, call, tool, USER, says(1)]) == [[reasoning, call], [says(1)]]


@pytest.mark.parametrize(
    "change",
    [
        {"stream": None},
        {"stream": {"frames": ["a"], "chunk": 1}},
        {"stream": {"frames": ["a", "b", 3], "chunk": 1}},
        {"stream": {"frames": [str(i) for i in range(9)], "chunk": 0}},
        {"stream": {"frames": [str(i) for i in range(9)], "chunk": True}},
        {"stream": {"frames": ["a", "b"], "chunk": 1}},
        {"objects": []},
    ],
)
def test_malformed_rows_are_refused_and_masked(change: dict[str, Any]) -> None:
    with pytest.raises(RowError):
        StreamRow.from_row(row() | change)
    result = score_stream([says(1)], row() | change)
    assert result.track.mask_sample
    assert result.to_json()["failure_kind"] == "nemo_gym_video:bad_row"


def test_a_tool_output_ends_a_turn_with_or_without_a_message() -> None:
    call, tool = {"type": "function_call", "call_id": "c"}, {"type": "function_call_output", "call_id": "c"}
    assert turns_of([call, call, tool, tool, says(1)]) == [[call, call], [says(1)]]
    assert turns_of([call, tool, USER, USER, says(1)]) == [[call], [], [says(1)]]
