# SPDX-License-Identifier: Apache-2.0
"""Alignment on rollouts that are written out by hand, with the engine's known numbers."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.alignment.calls import FAILURE_KIND, Aligner, Alignment, ModelCall, align_calls
from nemo_gym_video.contract import RowContract
from nemo_gym_video.errors import AlignmentError
from nemo_gym_video.processors.prediction import CallState

VIDEO = {"kind": "video", "size": [1920, 1080], "frames": 64, "source": "clip.mp4"}
IMAGE = {"kind": "image", "size": [2400, 1080], "source": "shot.png"}
MEDIA = 18


def contract(*items: dict[str, Any], **processor: Any) -> RowContract:
    block = {"family": "nemotron_omni", "max_model_len": 32768} | processor
    return RowContract.from_json({"items": list(items), "processor": block}).completed()


def media(*lengths: int) -> list[int]:
    """Wrapped runs as Nemotron has them: label, <img>, placeholders, </img>."""
    return [token for length in lengths for token in (7, 19, *[MEDIA] * length, 20)]


def prompt(*lengths: int) -> list[int]:
    return [1, 2, *media(*lengths), 3]


def align(row: RowContract, *calls: tuple[list[int], list[int]], **options: Any) -> Alignment:
    return align_calls(
        row, [ModelCall(prompt_token_ids=ids, generation_token_ids=out) for ids, out in calls], **options
    )


def kinds(alignment: Alignment) -> list[str]:
    return [finding.kind for finding in alignment.findings]


def test_exact_video() -> None:
    found = align(contract(VIDEO), (prompt(*[252] * 32), [5]))
    assert found.trustworthy
    assert found.failure_kind is None
    assert found.reason is None
    assert [region.status for region in found.regions] == ["exact"] * 32
    assert {region.provenance for region in found.regions} == {"processor"}
    assert found.regions[0].spans == ((4, 256),)
    assert found.regions[1].spans == ((259, 511),)
    assert found.regions[31].frames == (62, 64)
    assert found.regions[0].grid == (24, 42)


def test_square_engine_against_an_aspect_keeping_contract() -> None:
    found = align(contract(VIDEO), (prompt(*[256] * 32), [5]))
    assert not found.trustworthy
    assert found.failure_kind == FAILURE_KIND == "nemo_gym_video:media_alignment"
    (finding,) = found.findings
    assert (finding.kind, finding.turn, finding.item, finding.region) == ("run_length_mismatch", 0, 0, None)
    assert (finding.expected, finding.found) == (8064, 8192)
    assert finding.setting == "video_maintain_aspect_ratio"
    for words in ("8064", "8192", "32 runs of 252", "32 runs of 256", "video_maintain_aspect_ratio=false"):
        assert words in finding.message
    assert found.reason is not None
    assert "video_maintain_aspect_ratio" in found.reason
    assert {region.grid for region in found.regions} == {None}


def test_the_other_way_round() -> None:
    square = contract(VIDEO, settings={"video_maintain_aspect_ratio": False})
    assert align(square, (prompt(*[256] * 32), [5])).trustworthy
    (finding,) = align(square, (prompt(*[252] * 32), [5])).findings
    assert (finding.expected, finding.found) == (8192, 8064)
    assert "video_maintain_aspect_ratio=true" in finding.message


def test_image_takes_the_engines_count_and_its_only_grid() -> None:
    found = align(contract(IMAGE), (prompt(2010), [5]))
    assert found.trustworthy
    (region,) = found.regions
    assert (region.status, region.provenance) == ("reconciled", "engine")
    assert region.run_lengths == (2010,)
    assert region.grid == (60, 134)  # 134x60 as width x height
    assert region.processed_size == (134 * 16, 60 * 16)


def test_image_count_that_no_budget_gives_is_masked() -> None:
    found = align(contract(IMAGE), (prompt(2011), [5]))
    assert not found.trustworthy
    assert found.regions[0].grid is None
    (finding,) = found.findings
    assert (finding.kind, finding.item, finding.region) == ("run_length_mismatch", 0, 0)
    assert (finding.expected, finding.found) == (2550, 2011)
    assert "no single patch grid" in finding.message


def test_reconciling_needs_settings() -> None:
    row = RowContract.from_json(
        {"items": [IMAGE | {"regions": [{"run_lengths": [2550]}]}], "media_token_ids": [MEDIA]}
    )
    assert align(row, (prompt(2550), [5])).trustworthy
    found = align(row, (prompt(2010), [5]))
    assert not found.trustworthy
    assert "no processor settings" in found.findings[0].message


def test_single_wrong_tubelets_are_named() -> None:
    lengths = [252] * 32
    lengths[3] = 250
    found = align(contract(VIDEO), (prompt(*lengths), [5]))
    (finding,) = found.findings
    assert (finding.kind, finding.item, finding.region) == ("run_length_mismatch", 0, 3)
    assert (finding.expected, finding.found) == (252, 250)
    assert [region.status for region in found.regions].count("exact") == 31
    assert found.regions[3].status == "run_length_mismatch"


def test_media_that_never_reached_the_engine() -> None:
    found = align(contract(IMAGE, VIDEO), (prompt(2550), [5]))
    (finding,) = found.findings
    assert (finding.kind, finding.item, finding.expected, finding.found) == ("run_missing", 1, 8064, 0)
    found = align(contract(IMAGE), (prompt(), [5]))
    assert kinds(found) == ["run_missing"]
    assert found.regions == ()


def test_fewer_frames_sampled() -> None:
    found = align(contract(VIDEO), (prompt(*[252] * 30), [5]))
    (finding,) = found.findings
    assert (finding.kind, finding.item) == ("run_missing", 0)
    assert (finding.expected, finding.found) == (8064, 7560)
    assert finding.setting == "num_frames"
    assert "num_frames=60" in finding.message


def test_one_tubelet_missing() -> None:
    found = align(contract(VIDEO), (prompt(*[252] * 31), [5]))
    (finding,) = found.findings
    assert (finding.kind, finding.item, finding.region) == ("run_missing", 0, 31)
    assert (finding.expected, finding.found) == (252, 0)
    assert [region.status for region in found.regions] == ["exact"] * 31 + ["run_missing"]
    assert not found.trustworthy


def test_frames_not_paired_into_tubelets() -> None:
    found = align(contract(VIDEO), (prompt(*[252] * 64), [5]))
    (finding,) = found.findings
    assert (finding.kind, finding.item, finding.found) == ("run_unexpected", 0, 16128)
    assert finding.setting == "video_temporal_patch_size"


def test_media_that_nobody_announced() -> None:
    found = align(contract(IMAGE), (prompt(2550, 30), [5]))
    (finding,) = found.findings
    assert (finding.kind, finding.item, finding.expected, finding.found) == ("run_unexpected", None, 0, 30)
    empty = RowContract.from_json({"items": [], "media_token_ids": [MEDIA]})
    assert kinds(align(empty, (prompt(3), [5]))) == ["run_unexpected"]
    assert align(empty, (prompt(), [5])).trustworthy


def test_pruned_video() -> None:
    for found_tokens in (4032, 2419, 2016, 806, 252):
        found = align(contract(VIDEO), (prompt(found_tokens), [5]))
        (finding,) = found.findings
        assert (finding.kind, finding.item, finding.expected, finding.found) == (
            "pruned_video",
            0,
            8064,
            found_tokens,
        )
        assert "--video-pruning-rate" in finding.message


def test_pruned_video_between_images() -> None:
    found = align(contract(IMAGE, VIDEO, IMAGE), (prompt(2550, 2419, 2550), [5]))
    assert [(finding.kind, finding.item) for finding in found.findings] == [("pruned_video", 1)]
    assert [region.status for region in found.regions if region.item != 1] == ["exact", "exact"]


def test_truncated_at_the_end_of_the_prompt() -> None:
    ids = prompt(*[252] * 20)[:-60]
    assert ids[-1] == MEDIA
    (finding,) = align(contract(VIDEO), (ids, [5])).findings
    assert finding.kind == "run_truncated"
    assert finding.found == ids.count(MEDIA)
    (finding,) = align(contract(IMAGE), ([1, 19, *[MEDIA] * 2010], [5])).findings
    assert (finding.kind, finding.expected, finding.found) == ("run_truncated", 2550, 2010)


def test_truncated_from_the_left() -> None:
    ids = prompt(*[252] * 32)[100:]
    assert ids[0] == MEDIA
    (finding,) = align(contract(VIDEO), (ids, [5])).findings
    assert finding.kind == "run_truncated"
    assert "from the left" in finding.message


def test_fused_runs_of_a_family_that_wraps() -> None:
    found = align(contract(IMAGE, IMAGE), (prompt(5100), [5]))
    (finding,) = found.findings
    assert (finding.kind, finding.item, finding.found) == ("fused_regions", 0, 5100)
    assert not found.trustworthy
    assert [region.status for region in found.regions] == ["fused_regions"] * 2


@dataclass
class _FusingContract:
    """A contract of a family without wrappers, as far as alignment looks at it."""

    items: Any
    settings: Any = field(default_factory=lambda: SimpleNamespace(adjacent_regions_can_fuse=True))
    state: CallState = field(default_factory=CallState)
    media_token_ids: tuple[int, ...] = (MEDIA,)


def test_fused_runs_of_a_family_without_wrappers() -> None:
    image = {"kind": "image", "run_lengths": [730]}
    row = _FusingContract(RowContract.from_json({"items": [image, image]}).items)
    found = align(row, ([1, *[MEDIA] * 1460, 2], [5]))  # type: ignore[arg-type]
    assert found.trustworthy
    assert kinds(found) == ["fused_regions"]
    assert [region.spans for region in found.regions] == [((1, 731),), ((731, 1461),)]
    assert [region.status for region in found.regions] == ["exact", "exact"]


def test_long_and_ragged_names_stay_one_short_line() -> None:
    row = contract(IMAGE | {"source": "a\nb" * 500})
    (finding,) = align(row, (prompt(), [5])).findings
    assert "\n" not in finding.message
    assert len(finding.message) < 500


def test_generated_media_tokens_are_reported_and_never_attributed() -> None:
    first = prompt(2550)
    written = [5, MEDIA, MEDIA, 6]
    second = [*first, *written, 9, *media(2550), 3]
    found = align(contract(IMAGE, IMAGE), (first, written), (second, [5]))
    assert found.trustworthy
    (finding,) = found.findings
    assert (finding.kind, finding.turn, finding.found) == ("generated_media_token", 0, 2)
    assert [(region.turn, region.status) for region in found.regions] == [(0, "exact"), (1, "exact")]
    assert found.regions[1].spans == ((len(first) + 4 + 3, len(first) + 4 + 3 + 2550),)


def test_generated_tokens_that_touch_a_run() -> None:
    first = prompt(2550)
    found = align(contract(IMAGE, IMAGE), (first, [5, MEDIA]), ([*first, 5, MEDIA, *[MEDIA] * 2550, 20, 3], [5]))
    assert [region.run_lengths for region in found.regions] == [(2550,), (2550,)]


def test_a_seen_prefix_is_not_attributed_again() -> None:
    first = prompt(2550)
    calls = [(first, [5]), ([*first, 5, 8], [6]), ([*first, 5, 8, 6, *media(2550), 3], [5])]
    found = align(contract(IMAGE, IMAGE), *calls)
    assert [(region.turn, region.item) for region in found.regions] == [(0, 0), (2, 1)]
    assert found.trustworthy


def test_the_same_media_again_is_media_again() -> None:
    first = prompt(2550)
    found = align(contract(IMAGE), (first, [5]), ([*first, 5, *media(2550), 3], [5]))
    assert [(finding.kind, finding.turn) for finding in found.findings] == [("run_unexpected", 1)]


def test_changed_prefix_is_read_again() -> None:
    first = prompt(2550)
    changed = [*first[:-1], 4, 5, *media(2550), 3]
    found = align(contract(IMAGE, IMAGE), (first, [5]), (changed, [5]))
    (finding,) = found.findings
    assert (finding.kind, finding.turn) == ("prefix_changed", 1)
    assert (finding.expected, finding.found) == (len(first) + 1, len(first) - 1)
    assert [(region.turn, region.item, region.status) for region in found.regions] == [
        (0, 0, "exact"),
        (1, 1, "exact"),
    ]
    assert not found.trustworthy


def test_rebudgeted_images_are_named() -> None:
    # The ninth 1920x1080 screenshot at 16384 makes the engine shrink all of them from 2040 to 1792.
    shot = {"kind": "image", "size": [1920, 1080]}
    items = [shot | {"turn": turn} for turn in range(9)]
    row = contract(*items, max_model_len=16384)
    assert [item.total for item in row.items] == [2040] * 8 + [1792]
    aligner = Aligner(row)
    ids: list[int] = [1]
    for _ in range(8):
        ids = [*ids, *media(2040), 3]
        assert aligner.align_call(ids, [5]).trustworthy
        ids = [*ids, 5]
    shrunk = [1, *[token for _ in range(9) for token in (*media(1792), 3, 5)]][:-1]
    added = aligner.align_call(shrunk, [5])
    assert kinds(added) == ["prefix_changed"] + ["run_length_mismatch"] * 8
    assert (added.findings[1].expected, added.findings[1].found) == (2040, 1792)
    assert [region.status for region in added.regions] == ["exact"]


def test_items_belong_to_their_turn() -> None:
    row = contract(IMAGE | {"turn": 0}, IMAGE | {"turn": 1})
    first = prompt(2550)
    assert align(row, (first, [5]), ([*first, 5, *media(2550), 3], [5])).trustworthy
    # All in the first call: the second image is not expected there.
    both = prompt(2550, 2550)
    assert kinds(align(row, (both, [5]), ([*both, 5, 3], [5]))) == ["run_unexpected", "run_missing"]
    # Never sent: the call that should have shown it says so.
    found = align(row, (first, [5]), ([*first, 5, 3], [5]))
    assert [(finding.kind, finding.turn, finding.item) for finding in found.findings] == [("run_missing", 1, 1)]


def test_environment_media_is_announced_call_by_call() -> None:
    aligner = Aligner(contract(IMAGE | {"turn": 0}))
    first = prompt(2550)
    assert aligner.align_call(first, [5]).trustworthy
    aligner.add_items(contract(VIDEO | {"turn": 1}).items)
    added = aligner.align_call([*first, 5, *media(*[252] * 32), 3], [5])
    assert {(region.turn, region.item) for region in added.regions} == {(1, 1)}
    assert aligner.finish().trustworthy


def test_an_item_no_call_showed() -> None:
    aligner = Aligner(contract(IMAGE | {"turn": 0}, IMAGE | {"turn": 5}))
    aligner.align_call(prompt(2550), [5])
    assert [(finding.kind, finding.item) for finding in aligner.finish().findings] == [("run_missing", 1)]


@pytest.mark.parametrize(
    ("items", "lengths", "shares"),
    [
        ([{"kind": "image"}], [77], [[77]]),
        ([{"kind": "video", "frames": 8}], [9, 9, 9, 9], [[9], [9], [9], [9]]),
        ([{"kind": "image"}, {"kind": "video"}, {"kind": "image"}], [5, 9, 9, 6], [[5], [9], [9], [6]]),
    ],
)
def test_without_a_processor_the_engine_counts(
    items: list[dict[str, Any]], lengths: list[int], shares: list[list[int]]
) -> None:
    row = RowContract.from_json({"items": items, "media_token_ids": [MEDIA]})
    found = align(row, (prompt(*lengths), [5]))
    assert found.trustworthy
    assert [list(region.run_lengths) for region in found.regions] == shares
    assert {(region.status, region.provenance, region.grid) for region in found.regions} == {
        ("reconciled", "engine", None)
    }
    assert kinds(align(row, (prompt(), [5]))) == ["run_missing"] * len(items)


def test_nobody_says_which_ids_are_media() -> None:
    row = RowContract.from_json({"items": [{"kind": "image"}]})
    with pytest.raises(AlignmentError, match="media_token_ids"):
        align(row, (prompt(3), [5]))
    assert align(row, (prompt(3), [5]), media_token_ids=[MEDIA]).trustworthy


def test_malformed_ids_are_refused() -> None:
    with pytest.raises(AlignmentError, match="prompt_token_ids"):
        align(contract(IMAGE), ([1, "18"], [5]))  # type: ignore[list-item]
    with pytest.raises(AlignmentError, match="generation_token_ids"):
        align(contract(IMAGE), (prompt(2550), [5.5]))  # type: ignore[list-item]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_media_token_of_a_prompt_is_accounted_for(data: st.DataObject) -> None:
    """Whatever the engine did, the spans and the findings account for the prompt's media tokens, once each."""
    pool: list[dict[str, Any]] = [IMAGE, VIDEO | {"frames": 6}]
    items = data.draw(st.lists(st.sampled_from(pool), max_size=4))
    lengths = data.draw(st.lists(st.sampled_from([252, 256, 2550, 2010, 1]), max_size=14))
    row = contract(*items) if items else RowContract.from_json({"items": [], "media_token_ids": [MEDIA]})
    ids = prompt(*lengths)
    found = align(row, (ids, [5]))
    positions = [place for region in found.regions for start, end in region.spans for place in range(start, end)]
    assert len(positions) == len(set(positions))
    assert all(ids[place] == MEDIA for place in positions)
    unclaimed = sum(finding.found or 0 for finding in found.findings if finding.item is None)
    assert len(positions) + unclaimed == ids.count(MEDIA)
    exact = [length for item in row.items for region in item.regions or () for length in region.run_lengths]
    if lengths == exact:
        assert found.findings == ()
    if all(region.status in ("exact", "reconciled") for region in found.regions) and not found.findings:
        assert len(lengths) == len(exact)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=5), st.randoms(use_true_random=False))
def test_exact_rollouts_of_any_length_are_trusted(introduced: list[int], random: Any) -> None:
    pool: list[dict[str, Any]] = [IMAGE, VIDEO | {"frames": 5}, {"kind": "image", "size": [640, 360]}]
    ids: list[int] = [1]
    calls: list[tuple[list[int], list[int]]] = []
    items: list[dict[str, Any]] = []
    for turn, count in enumerate(introduced):
        items += [random.choice(pool) | {"turn": turn} for _ in range(count)]
    row = (
        contract(*items, processor_cache=True)
        if items
        else RowContract.from_json({"items": [], "media_token_ids": [MEDIA]})
    )
    for turn in range(len(introduced)):
        for item in row.items:
            if item.turn == turn:
                ids = [*ids, *media(*(length for region in item.regions or () for length in region.run_lengths))]
        written = [random.randint(30, 90) for _ in range(3)]
        calls.append(([*ids, 3], written))
        ids = [*ids, 3, *written]
    found = align(row, *calls)
    if introduced:
        assert found.findings == ()
        assert sum(sum(region.run_lengths) for region in found.regions) == ids.count(MEDIA)


FAULTS = ("drop", "shrink", "grow", "add", "cut")


@settings(max_examples=80, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=4), st.sampled_from(FAULTS), st.data())
def test_any_single_fault_in_a_video_is_found(videos: list[bool], fault: str, data: st.DataObject) -> None:
    """Rollouts that differ from their contract in one run of a video are never trusted."""
    row = contract(*(VIDEO | {"frames": 6} if video else IMAGE for video in videos))
    runs = [
        (item.kind, length) for item in row.items for region in item.regions or () for length in region.run_lengths
    ]
    places = [place for place, (kind, _) in enumerate(runs) if kind == "video"]
    lengths = [length for _, length in runs]
    assert align(row, (prompt(*lengths), [5])).trustworthy
    if not places:
        return
    place = data.draw(st.sampled_from(places))
    if fault == "drop":
        del lengths[place]
    elif fault == "add":
        lengths.insert(place, data.draw(st.sampled_from([252, 256, 1])))
    elif fault in ("shrink", "grow"):
        lengths[place] += data.draw(st.integers(1, 100)) * (1 if fault == "grow" else -1)
    ids = prompt(*lengths)
    if fault == "cut":
        ends = [index for index, token in enumerate(prompt(*lengths[: place + 1])) if token == MEDIA]
        ids = ids[: ends[-1] - data.draw(st.integers(0, 250))]
    found = align(row, (ids, [5]))
    assert not found.trustworthy
    assert found.failure_kind == FAILURE_KIND
    assert all("\n" not in finding.message for finding in found.findings)
