# SPDX-License-Identifier: Apache-2.0
"""The call ledger on a worked example of two turns, and on random conversations."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.alignment.capture import CallLedger, CapturedMedia
from nemo_gym_video.errors import AlignmentError

PAD = 99  # 2 ends a turn
ONE = CapturedMedia(media_id="one", kind="image", tokens=3, rows=4, grid=(1, 2, 2))
TWO = replace(ONE, media_id="two")


def first_turn() -> CallLedger:
    ledger = CallLedger(media_token_ids=(PAD,))
    ledger.record(
        "a",
        parent_id=None,
        compact_prompt=[80, PAD, 81],
        expanded_prompt=[80, PAD, PAD, PAD, 81],
        generated=[12, 2],
        media=[ONE],
    )
    return ledger


def second_turn(ledger: CallLedger, **changes: Any) -> None:
    call: dict[str, Any] = {
        "parent_id": "a",
        "compact_prompt": [80, PAD, 81, 12, 2, 20, PAD, 21],
        "expanded_prompt": [80, PAD, PAD, PAD, 81, 12, 2, 20, PAD, PAD, PAD, 21],
        "generated": [30, 2],
        "media": [ONE, TWO],
    }
    ledger.record("b", **call | changes)


def test_worked_example() -> None:
    ledger = first_turn()
    call = ledger.calls["a"]
    assert call.compact == (80, PAD, 81, 12, 2)
    assert call.expanded_length == 7
    # The template renders 13 where the model generated 12.
    spliced = ledger.splice("a", [80, PAD, 81, 13, 2, 20, PAD, 21], [80, PAD, 81, 13, 2])
    assert spliced == (80, PAD, 81, 12, 2, 20, PAD, 21)
    second_turn(ledger)
    call = ledger.calls["b"]
    assert call.expanded == (20, PAD, PAD, PAD, 21, 30, 2)
    assert call.compact == (20, PAD, 21, 30, 2)
    assert (call.media, call.media_before, call.expanded_length) == ((TWO,), 1, 14)

    columns = {"a": np.zeros((4, 12)), "b": np.ones((4, 12))}
    whole = ledger.reassemble("b", columns)
    assert len(whole.expanded) == 14
    assert whole.expanded.count(PAD) == 6 == sum(item.tokens for item in whole.media)
    assert np.concatenate(whole.columns).shape == (8, 12)
    assert [whole.expanded[place] for place in whole.generated] == [12, 2, 30, 2]
    assert columns == {}


def test_splicing_in_expanded_space_is_refused() -> None:
    expanded = [80, PAD, PAD, PAD, 81, 13, 2]
    with pytest.raises(AlignmentError, match="is it in expanded space"):
        first_turn().splice("a", [*expanded, 20, PAD, 21], expanded)


def test_a_previous_part_that_is_no_prefix_is_refused() -> None:
    with pytest.raises(AlignmentError, match="does not begin the rendered prompt"):
        first_turn().splice("a", [80, PAD, 81, 13, 2, 20], [80, PAD, 81, 12, 2])


def test_a_generated_placeholder_is_no_media() -> None:
    ledger = CallLedger(media_token_ids=(PAD,))
    prompt = [80, PAD, 81]
    ledger.record("a", parent_id=None, compact_prompt=prompt, expanded_prompt=[80, PAD, PAD, PAD, 81],
                  generated=[PAD, 2], media=[ONE])  # fmt: skip
    assert ledger.splice("a", [*prompt, PAD, 2, 20], [*prompt, PAD, 2]) == (*prompt, PAD, 2, 20)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"expanded_prompt": [80, PAD, PAD, PAD, 81, 13, 2, 20]}, "expanded prompt does not extend"),
        ({"compact_prompt": [80, PAD, 81, 13, 2, 20, PAD, 21]}, "compact prompt does not extend"),
        ({"expanded_prompt": [80]}, "does not extend"),
        ({"media": [ONE]}, "not one placeholder a new media item"),
        ({"media": []}, "fewer media"),
        ({"media": [ONE, replace(TWO, tokens=4)]}, "other placeholders"),
        ({"parent_id": "z"}, "no such call"),
    ],
)
def test_calls_that_do_not_fit(changes: dict[str, Any], words: str) -> None:
    ledger = first_turn()
    with pytest.raises(AlignmentError, match=words):
        second_turn(ledger, **changes)
    assert list(ledger.calls) == ["a"]


def test_a_call_is_recorded_once() -> None:
    ledger = first_turn()
    second_turn(ledger)
    with pytest.raises(AlignmentError, match="already recorded"):
        second_turn(ledger)


def test_missing_and_misfitting_columns_take_nothing() -> None:
    ledger = first_turn()
    second_turn(ledger)
    columns = {"a": [0] * 4}
    with pytest.raises(AlignmentError, match=r"media_columns_missing.*'b'"):
        ledger.reassemble("b", columns)
    columns["b"] = [0] * 5
    with pytest.raises(AlignmentError, match="media_mismatch: call 'b'"):
        ledger.reassemble("b", columns)
    assert list(columns) == ["a", "b"]
    ledger.calls["b"] = replace(ledger.calls["b"], media=(replace(TWO, grid=(1, 1, 4)),))
    columns["b"] = [0] * 4
    with pytest.raises(AlignmentError, match="media_mismatch: geometry"):
        ledger.reassemble("b", columns)


def test_a_branch_has_its_own_chain() -> None:
    ledger = first_turn()
    second_turn(ledger)
    ledger.record("c", parent_id="a", compact_prompt=[80, PAD, 81, 12, 2, 7],
                  expanded_prompt=[80, PAD, PAD, PAD, 81, 12, 2, 7], generated=[8], media=[ONE])  # fmt: skip
    whole = ledger.reassemble("c", {"a": [0] * 4})
    assert whole.expanded == (80, PAD, PAD, PAD, 81, 12, 2, 7, 8)
    assert whole.media == (ONE,)


turns = st.lists(
    st.tuples(st.lists(st.integers(1, 4), max_size=3), st.lists(st.integers(1, 50), min_size=1, max_size=4)),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(turns)
def test_reassembly_gives_back_the_conversation(conversation: list[tuple[list[int], list[int]]]) -> None:
    ledger = CallLedger(media_token_ids=(PAD,))
    compact: list[int] = []
    expanded: list[int] = []
    media: list[CapturedMedia] = []
    columns: dict[str, list[int]] = {}
    written: list[int] = []
    parent = None
    for turn, (tokens, generated) in enumerate(conversation):
        for count in tokens:
            compact += [60, PAD, 61]
            expanded += [60, *[PAD] * count, 61]
            media.append(replace(ONE, media_id=str(len(media)), tokens=count, rows=2 * count))
        columns[str(turn)] = [turn] * (2 * sum(tokens))
        ledger.record(str(turn), parent_id=parent, compact_prompt=[*compact, 70], expanded_prompt=[*expanded, 70],
                      generated=generated, media=media)  # fmt: skip
        compact += [70, *generated]
        expanded += [70, *generated]
        written += range(len(expanded) - len(generated), len(expanded))
        parent = str(turn)
    if parent is None:
        return
    whole = ledger.reassemble(parent, columns)
    assert whole.expanded == tuple(expanded)
    assert whole.compact == tuple(compact)
    assert whole.generated == tuple(written)
    assert whole.media == tuple(media)
    assert sum(map(len, whole.columns)) == 2 * sum(item.tokens for item in media)
