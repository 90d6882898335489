# SPDX-License-Identifier: Apache-2.0
"""The JSON form: exact both ways, compact, and strict about what it reads."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.contract import ContractItem, ContractProcessor, RowContract
from nemo_gym_video.errors import ContractError, Where
from nemo_gym_video.processors.prediction import CallState
from nemo_gym_video.processors.presets import load_settings
from nemo_gym_video.processors.regions import Region

DIGEST = "sha256:" + "0" * 64
VIDEO = {"kind": "video", "size": [1920, 1080], "frames": 64}


def loaded(value: Any) -> RowContract:
    return RowContract.from_json(json.loads(json.dumps(value)))


def test_a_video_is_written_once_not_32_times() -> None:
    row = loaded({"items": [VIDEO], "processor": {"family": "nemotron_omni"}}).completed()
    (item,) = row.to_json()["items"]
    assert item["regions"] == [
        {"repeat": 32, "run_lengths": [252], "grid": [24, 42], "processed_size": [672, 384], "frames": 2}
    ]
    assert loaded(row.to_json()) == row
    assert row.items[0].total == 8064


def test_regular_indices_and_times_are_short() -> None:
    item = VIDEO | {"frame_indices": list(range(0, 256, 4)), "fps": 24.0}
    row = loaded({"items": [item]})
    written = row.to_json()["items"][0]
    assert written["frame_indices"] == {"start": 0, "step": 4, "count": 64}
    assert "timestamps" not in written
    assert row.items[0].timestamps == tuple(index / 24.0 for index in range(0, 256, 4))


def test_irregular_times_are_kept_exactly() -> None:
    times = [0.0, 0.1, 0.30000000000000004, 1e-9 + 0.4]
    item = {"kind": "video", "frames": 4, "frame_indices": [0, 1, 3, 4], "fps": 10.0, "timestamps": times}
    row = loaded({"items": [item]})
    assert row.items[0].timestamps == tuple(times)
    assert row.to_json()["items"][0]["timestamps"] == times


def test_by_hand_the_processor_may_stand_at_the_top() -> None:
    short = loaded({"family": "nemotron_omni", "settings": {"video_maintain_aspect_ratio": False},
                    "max_model_len": 32768, "items": [VIDEO]})  # fmt: skip
    long = loaded({"processor": {"family": "nemotron_omni", "settings": {"video_maintain_aspect_ratio": False},
                                 "max_model_len": 32768}, "items": [VIDEO]})  # fmt: skip
    assert short == long
    assert short.completed().total == 8192


def test_by_hand_run_lengths_are_enough() -> None:
    row = loaded({"items": [VIDEO | {"run_lengths": [252] * 32}, {"kind": "image", "run_lengths": [64, 64]}]})
    video, image = row.items
    assert video.regions is not None
    assert image.regions is not None
    assert [region.frames for region in video.regions] == [(place, place + 2) for place in range(0, 64, 2)]
    assert [region.run_lengths for region in image.regions] == [(64, 64)]
    (bare,) = loaded({"items": [{"kind": "video", "run_lengths": [9, 9, 9]}]}).items
    assert (bare.frames, len(bare.regions or ())) == (3, 3)
    (odd,) = loaded({"items": [{"kind": "video", "frames": 7, "run_lengths": [9] * 4}]}).items
    assert odd.regions is not None
    assert odd.regions[-1].frames == (6, 7)


regions = st.builds(
    Region,
    run_lengths=st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple),
    grid=st.one_of(st.none(), st.just((24, 42))),
    processed_size=st.one_of(st.none(), st.just((672, 384))),
)
digests = st.one_of(st.none(), st.just(DIGEST))
processors = st.one_of(
    st.none(),
    st.builds(
        lambda preset, fingerprint, state: ContractProcessor(
            family=load_settings(preset).family,
            settings=load_settings(preset),
            fingerprint=fingerprint,
            state=state,
        ),
        st.sampled_from(
            ["nemotron_omni", "nemotron_omni_transformers", "qwen2_5_vl", "qwen3_vl", "internvl", "gemma4"]
        ),
        st.just(DIGEST),
        st.builds(
            CallState,
            max_model_len=st.one_of(st.none(), st.integers(1, 10**6)),
            text_tokens=st.integers(0, 9),
            processor_cache=st.booleans(),
            pruning_rate=st.floats(0, 0.99),
        ),
    ),
)


@st.composite
def items(draw: st.DrawFn) -> ContractItem:
    video = draw(st.booleans())
    parts = draw(st.lists(st.tuples(st.integers(1, 3), regions), min_size=1, max_size=6)) if video else []
    placed, end = [], 0
    for covered, region in parts:
        placed.append(Region(run_lengths=region.run_lengths, grid=region.grid,
                             processed_size=region.processed_size, frames=(end, end + covered)))  # fmt: skip
        end += covered
    count = end if video else 1
    indices = draw(st.one_of(st.none(), st.lists(st.integers(0, 99), min_size=count, max_size=count).map(sorted)))
    fps = draw(st.one_of(st.none(), st.floats(0.1, 100)))
    given_times = draw(st.one_of(st.none(), st.lists(st.floats(0, 1e6), min_size=count, max_size=count)))
    times: tuple[float, ...] | None = None if given_times is None else tuple(given_times)
    if times is None and indices is not None and fps is not None:
        times = tuple(index / fps for index in indices)
    return ContractItem(
        kind="video" if video else "image",
        counted_as=draw(st.sampled_from(["video", "image"])) if video else "image",
        source=draw(st.text(max_size=5)),
        digest=draw(digests),
        size=draw(st.one_of(st.none(), st.tuples(st.integers(1, 9), st.integers(1, 9)))),
        frames=count,
        frame_indices=None if indices is None else tuple(indices),
        total_frames=draw(st.one_of(st.none(), st.integers(1, 100))),
        fps=fps,
        timestamps=times,
        decoder=draw(st.one_of(st.none(), st.just("pyav 16"))),
        message=draw(st.one_of(st.none(), st.integers(0, 3))),
        part=draw(st.one_of(st.none(), st.integers(0, 3))),
        turn=draw(st.one_of(st.none(), st.integers(0, 3))),
        regions=draw(st.sampled_from([None, tuple(placed)]))
        if video
        else draw(st.one_of(st.none(), st.tuples(regions))),
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(items(), max_size=3), digests, processors, st.lists(st.integers(0, 200_000), max_size=2))
def test_writing_and_reading_is_exact(
    members: list[ContractItem], digest: str | None, processor: ContractProcessor | None, ids: list[int]
) -> None:
    known = () if processor is None or processor.settings is None else processor.settings.media_token_ids
    row = RowContract(
        mode="tagged_frames" if members else "none",
        items=tuple(members),
        message_digest=digest,
        processor=processor,
        media_token_ids=tuple(ids) or known,
    )
    assert loaded(row.to_json()) == row
    assert loaded(loaded(row.to_json()).to_json()) == row


BAD: list[tuple[str, Any, str]] = [
    ("no object", [], "all"),
    ("no items", {}, "items"),
    ("items no list", {"items": {}}, "items"),
    ("item no object", {"items": [3]}, "items"),
    ("version", {"version": 2, "items": []}, "version"),
    ("boolean version", {"version": True, "items": []}, "version"),
    ("mode", {"mode": "video", "items": []}, "mode"),
    ("mode without items", {"mode": "images", "items": []}, "mode"),
    ("mode none with items", {"mode": "none", "items": [{"kind": "image"}]}, "mode"),
    ("unknown field", {"items": [], "notes": 1}, "notes"),
    ("unknown item field", {"items": [{"kind": "image", "sise": [1, 1]}]}, r"items\[0\].sise"),
    ("kind", {"items": [{"kind": "audio"}]}, r"items\[0\].kind"),
    ("size of three", {"items": [{"kind": "image", "size": [1, 2, 3]}]}, "size"),
    ("size of zero", {"items": [{"kind": "image", "size": [0, 2]}]}, "size"),
    ("size of floats", {"items": [{"kind": "image", "size": [1.0, 2]}]}, "size"),
    ("frames of an image", {"items": [{"kind": "image", "frames": 2}]}, "frames"),
    ("frames zero", {"items": [{"kind": "video", "frames": 0}]}, "frames"),
    ("frames true", {"items": [{"kind": "video", "frames": True}]}, "frames"),
    ("frames huge", {"items": [{"kind": "video", "frames": 10**9}]}, "frames"),
    ("frames in all", {"items": [{"kind": "video", "frames": 100_000}] * 11}, "items"),
    ("indices too few", {"items": [VIDEO | {"frame_indices": [1]}]}, "frame_indices"),
    ("indices fall", {"items": [{"kind": "video", "frames": 2, "frame_indices": [2, 1]}]}, "frame_indices"),
    (
        "steps with a typo",
        {"items": [VIDEO | {"frame_indices": {"start": 0, "step": 1, "cuont": 64}}]},
        "frame_indices",
    ),
    ("times too few", {"items": [VIDEO | {"timestamps": [0.0]}]}, "timestamps"),
    ("fps zero", {"items": [VIDEO | {"fps": 0}]}, "fps"),
    ("fps text", {"items": [VIDEO | {"fps": "24"}]}, "fps"),
    ("counted_as", {"items": [{"kind": "image", "counted_as": "video"}]}, "counted_as"),
    ("digest", {"items": [{"kind": "image", "digest": "md5:1"}]}, "digest"),
    ("message digest", {"items": [], "message_digest": "sha256:xyz"}, "message_digest"),
    ("runs for too few frames", {"items": [{"kind": "video", "frames": 3, "run_lengths": [9] * 4}]}, "regions"),
    ("runs that do not divide", {"items": [{"kind": "video", "frames": 9, "run_lengths": [9] * 7}]}, "regions"),
    ("no runs", {"items": [{"kind": "video", "run_lengths": []}]}, "regions"),
    (
        "runs twice",
        {"items": [{"kind": "image", "run_lengths": [1], "regions": [{"run_lengths": [1]}]}]},
        "either",
    ),
    ("empty run lengths", {"items": [{"kind": "image", "regions": [{"run_lengths": []}]}]}, "regions"),
    ("run of zero", {"items": [{"kind": "image", "regions": [{"run_lengths": [0]}]}]}, "run_lengths"),
    ("no regions", {"items": [{"kind": "image", "regions": []}]}, "regions"),
    (
        "regions too short",
        {"items": [VIDEO | {"regions": [{"run_lengths": [1], "repeat": 31, "frames": 2}]}]},
        "regions",
    ),
    (
        "regions too long",
        {"items": [VIDEO | {"regions": [{"run_lengths": [1], "repeat": 33, "frames": 2}]}]},
        "regions",
    ),
    ("repeat bomb", {"items": [VIDEO | {"regions": [{"run_lengths": [1], "repeat": 10**8}]}]}, "repeat"),
    ("family", {"items": [], "processor": {"family": "nemotron"}}, "nemotron_omni"),
    ("family missing", {"items": [], "processor": {}}, "processor.family"),
    (
        "setting",
        {"items": [], "processor": {"family": "nemotron_omni", "settings": {"patchsize": 1}}},
        "patch_size",
    ),
    ("folder", {"items": [], "processor": {"family": "/etc"}}, "unknown processor"),
    ("hf folder", {"items": [], "processor": {"family": "hf", "settings": {"path": "/etc"}}}, "never a row's"),
    ("length", {"items": [], "processor": {"family": "nemotron_omni", "max_model_len": 0}}, "max_model_len"),
    ("rate", {"items": [], "processor": {"family": "nemotron_omni", "pruning_rate": 1}}, "pruning_rate"),
    ("token ids", {"items": [], "media_token_ids": ["18"]}, "media_token_ids"),
]


@pytest.mark.parametrize(("value", "named"), [entry[1:] for entry in BAD], ids=[entry[0] for entry in BAD])
def test_refused(value: Any, named: str) -> None:
    with pytest.raises(ContractError, match=named) as caught:
        RowContract.from_json(value, where=Where(row=4))
    assert str(caught.value).startswith("row 4: ")
    assert "\n" not in str(caught.value)


def test_unbound_contracts_do_not_vouch_for_messages() -> None:
    with pytest.raises(ContractError, match="not bound"):
        loaded({"items": []}).check_messages("hello")


def test_a_folders_processor_travels_without_its_folder() -> None:
    row = loaded({"items": [{"kind": "image"}], "processor": {"family": "hf", "fingerprint": DIGEST}})
    assert row.settings is None
    assert row.fingerprint == DIGEST
    assert loaded(row.to_json()) == row
