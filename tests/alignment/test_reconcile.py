# SPDX-License-Identifier: Apache-2.0
"""Reconciling against a brute-force rewrite with ``itertools.groupby``."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.alignment.reconcile import RecordedRun, processed_size_for, reconcile_prompt_ids
from nemo_gym_video.errors import AlignmentError
from nemo_gym_video.processors.presets import load_settings

MEDIA = (18,)


def image(length: int) -> RecordedRun:
    return RecordedRun("image", length)


def test_image_runs_shrink_and_grow() -> None:
    done = reconcile_prompt_ids([1, 18, 18, 18, 2, 18, 3], [image(2), image(3)], media_token_ids=MEDIA)
    assert done.token_ids == (1, 18, 18, 2, 18, 18, 18, 3)
    assert done.origins == (0, 1, 2, 4, 5, -1, -1, 6)


def test_generated_placeholders_stay() -> None:
    ids = [1, 18, 18, 2, 18, 18, 18, 3]
    done = reconcile_prompt_ids(ids, [image(1), image(1)], media_token_ids=MEDIA, generated={4, 5})
    assert done.token_ids == (1, 18, 2, 18, 18, 18, 3)
    assert done.origins == (0, 1, 3, 4, 5, 6, 7)
    with pytest.raises(AlignmentError, match="another number of media runs"):
        reconcile_prompt_ids(ids, [image(1)], media_token_ids=MEDIA, generated={4, 5})


def test_video_must_match() -> None:
    video = RecordedRun("video", 3)
    assert reconcile_prompt_ids([18, 18, 18], [video], media_token_ids=MEDIA).token_ids == (18, 18, 18)
    with pytest.raises(AlignmentError, match="must match exactly; got 2; allowed: 3"):
        reconcile_prompt_ids([18, 18], [video], media_token_ids=MEDIA)


@pytest.mark.parametrize("generated", [{-1}, {9}])
def test_positions_outside_are_refused(generated: set[int]) -> None:
    with pytest.raises(AlignmentError, match="outside the prompt"):
        reconcile_prompt_ids([1, 18], [image(1)], media_token_ids=MEDIA, generated=generated)


def test_recorded_run_without_tokens_is_refused() -> None:
    with pytest.raises(AlignmentError, match="no tokens"):
        reconcile_prompt_ids([1, 18], [image(0)], media_token_ids=MEDIA)


def test_text_only() -> None:
    assert reconcile_prompt_ids([1, 2], [], media_token_ids=MEDIA).token_ids == (1, 2)
    assert reconcile_prompt_ids([], [], media_token_ids=MEDIA).token_ids == ()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([18, 18, 1, 2]), st.booleans()), max_size=40), st.data())
def test_agrees_with_a_plain_rewrite(entries: list[tuple[int, bool]], data: st.DataObject) -> None:
    ids = [token for token, _ in entries]
    generated = {place for place, (_, written) in enumerate(entries) if written}
    # A group is a run when its key is a placeholder that nobody generated.
    keyed = [(token, place in generated) for place, token in enumerate(ids)]
    groups = [(key, len(list(group))) for key, group in itertools.groupby(keyed)]
    recorded, expected = [], []
    for (token, written), count in groups:
        if token == 18 and not written:
            count = data.draw(st.integers(1, 5))
            recorded.append(image(count))
        expected += [token] * count
    done = reconcile_prompt_ids(ids, recorded, media_token_ids=MEDIA, generated=generated)
    assert list(done.token_ids) == expected
    assert len(done.origins) == len(expected)
    kept = [place for place in done.origins if place >= 0]
    assert kept == sorted(set(kept))
    assert generated <= set(kept)
    assert all(done.token_ids[new] == ids[old] for new, old in enumerate(done.origins) if old >= 0)


def test_processed_size_of_a_reconciled_image() -> None:
    processor = load_settings("nemotron_omni")
    assert processed_size_for(processor, (2400, 1080), 2010) == ((2144, 960), (60, 134))
    assert processed_size_for(processor, (1920, 1080), 2040) == ((1920, 1088), (68, 120))
    with pytest.raises(AlignmentError, match="no single patch grid of nemotron_omni"):
        processed_size_for(processor, (2400, 1080), 2011)
