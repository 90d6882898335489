# SPDX-License-Identifier: Apache-2.0
"""One rollout, seen by the agent, ``index``, ``align`` and the NeMo RL view: one verdict, one list of findings.

Damaged rollouts name the kinds that must be found, so that four views that all see nothing do not pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nemo_gym_video.alignment import index_turns
from nemo_gym_video.cli import build_app
from nemo_gym_video.contract import ContractItem, RowContract
from nemo_gym_video.messages import MediaKind
from nemo_gym_video.processors.presets import load_settings
from nemo_gym_video.servers.emit import Emission, EmittedItem
from nemo_gym_video.servers.evidence import MediaRecord
from nemo_gym_video.servers.play import Call, PlayedEpisode
from nemo_gym_video.trainers.nemo_rl import nemo_rl_turns

FAMILIES = ("nemotron_omni", "qwen2_5_vl", "qwen3_vl", "internvl", "gemma4")
TEXT = [1, 2]


@dataclass
class Scene:
    """A rollout of two turns. ``runs[t]`` are the (kind, length) runs of turn t's new media, in prompt order.

    The first turn shows a clip between two stills, the second a still that the environment brings.
    """

    family: str
    items: list[list[ContractItem]] = field(default_factory=list)
    runs: list[list[tuple[MediaKind, int]]] = field(default_factory=list)
    generated: list[list[int]] = field(default_factory=lambda: [[7, 8], [7]])
    has_contract: bool = True
    has_processor: bool = True
    has_ids: bool = True
    prompts: list[list[int]] | None = None

    def __post_init__(self) -> None:
        still = ContractItem(kind="image", source="a.png", size=(640, 480), counted_as="image", turn=0)
        clip = ContractItem(kind="video", source="c.mp4", size=(640, 480), counted_as="video", frames=8, turn=0)
        items = [still, clip, replace(still, source="b.png"), replace(still, source="d.png", turn=1)]
        settings = load_settings(self.family)
        self.contract = RowContract(mode="native_video", items=tuple(items), message_digest=None)
        self.contract = self.contract.with_counts(settings)
        counted = self.contract.items
        self.counted = self.contract
        self.items = [list(counted[:3]), list(counted[3:])]
        self.runs = [
            [(one.kind, length) for one in shown for region in one.regions or () for length in region.run_lengths]
            for shown in self.items
        ]

    def ids(self, kind: MediaKind) -> int:
        return self.counted.media_token_ids[0 if kind == "image" else -1]

    def prompt(self, turn: int) -> list[int]:
        """The whole prompt of a call: what came before, and the new media between text."""
        if self.prompts is not None:
            return self.prompts[turn]
        before = [] if turn == 0 else [*self.prompt(turn - 1), *self.generated[turn - 1]]
        new = [token for kind, length in self.runs[turn] for token in (5, *[self.ids(kind)] * length, 6)]
        return [*before, *TEXT, *new, 3]

    def at(self, kind: MediaKind, number: int = 0) -> int:
        """Place among the first turn's runs of the numbered run of a kind."""
        return [place for place, run in enumerate(self.runs[0]) if run[0] == kind][number]

    def set(self, kind: MediaKind, change: Callable[[int], int], number: int = 0) -> None:
        place = self.at(kind, number)
        self.runs[0][place] = (kind, change(self.runs[0][place][1]))

    def messages(self, turn: int) -> list[dict[str, Any]]:
        parts = [
            {"type": "input_video", "video_url": one.source}
            if one.kind == "video"
            else {"type": "input_image", "image_url": one.source}
            for one in self.items[turn]
        ]
        return [{"type": "message", "role": "user", "content": parts}]

    def agent(self) -> tuple[MediaRecord, dict[str, Any]]:
        """The agent's own evidence code, with what it would have emitted and the calls it would have made."""
        if not self.has_processor:
            self.items = [[replace(one, regions=None) for one in shown] for shown in self.items]
            self.contract = replace(self.contract, processor=None)
            if not self.has_ids:
                self.contract = replace(self.contract, media_token_ids=())
        own = replace(self.contract, items=tuple(self.items[0]))
        record = MediaRecord(own if self.has_contract else None, None)
        for turn, shown in enumerate(self.items):
            emitted = tuple(
                EmittedItem(
                    kind=one.kind, source=one.source, media_id=f"sha256:{one.source}",
                    form="input_video" if one.kind == "video" else "input_image",
                    tagged=False,
                    frames=one.frames if one.kind == "video" else None,
                    parts=(self.messages(turn)[0]["content"][n],),
                )
                for n, one in enumerate(shown)
            )  # fmt: skip
            emission = Emission(messages=self.messages(turn), items=emitted, mode="native_video")
            record.add(turn, emission, shown if turn and self.has_contract else ())
        calls = [
            Call(messages=1, response={"id": f"r{turn}"}, prompt_token_ids=self.prompt(turn),
                 generation_token_ids=tuple(self.generated[turn]))
            for turn in range(2)
        ]  # fmt: skip
        told = record.report(PlayedEpisode(messages=[], calls=calls))
        return record, dict(json.loads(json.dumps(told)))

    def rollout(self, told: dict[str, Any]) -> dict[str, Any]:
        """The line of a rollout file, as Gym would have written it."""
        answers = [
            {"type": "message", "role": "assistant", "content": [], "prompt_token_ids": self.prompt(turn),
             "generation_token_ids": self.generated[turn]}
            for turn in range(2)
        ]  # fmt: skip
        output = [answers[0], *self.messages(1), answers[1]]
        return {**told, "responses_create_params": {"input": self.messages(0)}, "response": {"output": output}}


def wrong_count(scene: Scene) -> None:
    scene.set("image", lambda count: count + 1)


def one_token(scene: Scene) -> None:
    scene.set("image", lambda _: 1)


def cut_still(scene: Scene) -> None:
    scene.set("image", lambda count: count * 47 // 77 // 2 * 2 + 1)


def doubled_still(scene: Scene) -> None:
    scene.set("image", lambda count: 2 * count)


def expanded_again(scene: Scene) -> None:
    scene.set("image", lambda count: 2 * count - 1)


def fused(scene: Scene) -> None:
    """The last run of the clip runs into the still behind it, as one run of the still's id."""
    place = scene.at("image", 1)
    length = scene.runs[0][place - 1][1] + scene.runs[0][place][1]
    scene.runs[0][place - 1 : place + 1] = [("image", length)]


def cut_video(scene: Scene) -> None:
    scene.set("video", lambda count: count - 10)


def grown_video(scene: Scene) -> None:
    scene.set("video", lambda count: count + 1)


def doubled_video(scene: Scene) -> None:
    scene.runs[0] = [(kind, 2 * length if kind == "video" else length) for kind, length in scene.runs[0]]


def pruned_video(scene: Scene) -> None:
    total = sum(length for kind, length in scene.runs[0] if kind == "video")
    place = scene.at("video")
    stills = [run for run in scene.runs[0] if run[0] == "image"]
    scene.runs[0] = [*stills[:place], ("video", total // 3), *stills[place:]]


def missing_video(scene: Scene) -> None:
    scene.runs[0] = [run for run in scene.runs[0] if run[0] == "image"]


def missing_still(scene: Scene) -> None:
    del scene.runs[0][scene.at("image")]


def missing_later_still(scene: Scene) -> None:
    scene.runs[1] = []


def blind(scene: Scene) -> None:
    scene.runs = [[], []]


def foreign_run(scene: Scene) -> None:
    scene.runs[0].append(("image", 3))


def foreign_run_later(scene: Scene) -> None:
    scene.runs[1].append(("image", 3))


def rendered_twice(scene: Scene) -> None:
    """The picture stands once in the messages and twice in the prompt."""
    scene.runs[1] *= 2


def wrote_media(scene: Scene) -> None:
    scene.generated[0] = [7, *[scene.ids("image")] * 3, 8]


def compacted(scene: Scene) -> None:
    first, second = scene.prompt(0), scene.runs[1]
    kept = [token for kind, length in second for token in (5, *[scene.ids(kind)] * length, 6)]
    scene.prompts = [first, [1, 50, 51, *kept, 3]]


def retokenised(scene: Scene) -> None:
    first, second = scene.prompt(0), scene.prompt(1)
    second[len(first)] = 99
    scene.prompts = [first, second]


def rebudgeted(scene: Scene) -> None:
    """The second prompt has the first still with other tokens."""
    first = scene.prompt(0)
    second = scene.prompt(1)
    del second[second.index(scene.ids("image"))]
    scene.prompts = [first, second]


def cut_right(scene: Scene) -> None:
    """Both prompts end inside the second turn's still."""
    first, second = scene.prompt(0), scene.prompt(1)
    scene.prompts = [first, second[:-10]]


def cut_left(scene: Scene) -> None:
    first, second = scene.prompt(0), scene.prompt(1)
    scene.prompts = [first[6:], second[6:]]


def no_prompt_ids(scene: Scene) -> None:
    scene.prompts = [[], scene.prompt(1)[len(scene.prompt(0)) + 2 :]]


def no_processor(scene: Scene) -> None:
    scene.has_processor = scene.has_ids = False


def uncounted_and_blind(scene: Scene) -> None:
    """Nothing is predicted, but the ids are known: the later still is missing all the same."""
    scene.has_processor = False
    scene.runs[1] = []


def unknown_provenance(scene: Scene) -> None:
    scene.has_contract = False


DAMAGES: dict[Callable[[Scene], None], set[str]] = {
    wrong_count: {"run_length_mismatch"},
    one_token: {"run_length_mismatch"},
    cut_still: {"run_length_mismatch"},
    doubled_still: {"run_doubled"},
    expanded_again: {"run_doubled"},
    fused: {"fused_regions"},
    cut_video: {"run_length_mismatch"},
    grown_video: {"run_length_mismatch"},
    doubled_video: {"run_doubled"},
    pruned_video: {"pruned_video", "run_length_mismatch"},
    missing_video: {"run_missing", "run_length_mismatch"},
    missing_still: {"run_missing", "run_length_mismatch"},
    missing_later_still: {"run_missing"},
    blind: {"run_missing"},
    foreign_run: {"run_unexpected"},
    foreign_run_later: {"run_unexpected"},
    rendered_twice: {"run_unexpected"},
    wrote_media: {"generated_media_token"},
    compacted: {"prefix_changed"},
    retokenised: {"prefix_changed"},
    rebudgeted: {"prefix_changed"},
    cut_right: {"run_truncated"},
    cut_left: {"run_truncated"},
    no_prompt_ids: {"prompt_token_ids_missing"},
    uncounted_and_blind: {"run_missing"},
    no_processor: {"media_token_ids_unknown"},
    unknown_provenance: {"media_token_ids_unknown"},
}
NOT_MASKED = {wrote_media, no_prompt_ids, no_processor, unknown_provenance}


def command(name: str, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(build_app(name), [name, *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def in_order(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(findings, key=lambda finding: json.dumps(finding, sort_keys=True))


def judged(scene: Scene, folder: Path) -> tuple[list[dict[str, Any]], bool]:
    """The one list of findings and the one verdict, after all views were asked and compared."""
    record, told = scene.agent()
    rollout = scene.rollout(told)
    file = folder / "rollouts.jsonl"
    file.write_text(json.dumps(rollout) + "\n", encoding="utf-8")
    agent = told["media_findings"]

    index = index_turns(rollout)
    assert [finding.to_json() for finding in index.findings] == agent
    code, (indexed,) = command("index", str(file), "--check")
    assert indexed["findings"] == agent
    assert code == (1 if agent else 0)
    _, (aligned,) = command("align", "--jsonl", str(file))
    assert aligned["findings"] == agent
    assert command_verdict(file) is aligned["trustworthy"]
    trainer = nemo_rl_turns(rollout)
    assert in_order([finding.to_json() for finding in trainer.all_findings]) == in_order(agent)

    verdicts = {record.untrusted is None, index.trustworthy, aligned["trustworthy"], trainer.trustworthy}
    assert len(verdicts) == 1
    assert aligned["reason"] == record.untrusted
    # Not only the words: where each view puts the media is the same as well.
    spans = [one["model_specific_sidecars"].get("spans", []) for one in told["media_occurrences"]]
    mine = [[list(span) for span in one.spans] for turn in index.turns for one in turn.media]
    assert mine == spans
    return agent, verdicts.pop()


def command_verdict(file: Path) -> bool:
    """``align`` without ``--jsonl`` says it with its exit code."""
    done = CliRunner().invoke(build_app("align"), ["align", str(file)])
    assert done.exit_code in (0, 1), done.output
    return done.exit_code == 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_rollout_is_judged_alike(damage: Callable[[Scene], None], family: str, tmp_path: Path) -> None:
    scene = Scene(family)
    damage(scene)
    findings, trusted = judged(scene, tmp_path)
    assert {finding["kind"] for finding in findings} & DAMAGES[damage]
    assert trusted is (damage in NOT_MASKED)


def test_there_are_enough_damages() -> None:
    assert len(DAMAGES) * len(FAMILIES) >= 40


@pytest.mark.parametrize("family", FAMILIES)
def test_an_undamaged_rollout_is_clean(family: str, tmp_path: Path) -> None:
    """The twin: no view finds anything."""
    assert judged(Scene(family), tmp_path) == ([], True)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_picture_shown_again_is_clean(family: str, tmp_path: Path) -> None:
    """The same picture a second time, in messages and prompt alike, is a second occurrence."""
    scene = Scene(family)
    scene.items[1] *= 2
    scene.runs[1] *= 2
    assert judged(scene, tmp_path) == ([], True)


def test_messages_say_what_to_do(tmp_path: Path) -> None:
    for damage, words in ((doubled_still, "expanded again"), (cut_right, "max_model_len")):
        scene = Scene("nemotron_omni")
        damage(scene)
        findings, _ = judged(scene, tmp_path)
        assert any(words in finding["message"] for finding in findings)


SAVED = sorted((Path(__file__).parents[1] / "fixtures" / "saved_0_1").glob("*.jsonl"))


@pytest.mark.parametrize("file", SAVED, ids=lambda file: file.stem)
def test_the_demo_as_real_servers_rolled_it_out_is_clean_for_all(file: Path) -> None:
    rollouts = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    code, indexed = command("index", str(file), "--check")
    _, aligned = command("align", "--jsonl", str(file))
    assert code == 0
    for rollout, seen, judged_by_align in zip(rollouts, indexed, aligned, strict=True):
        assert rollout["media_findings"] == []  # what the agent said while it ran
        assert rollout["media_tokens"] > 0
        assert seen["findings"] == judged_by_align["findings"] == list(index_turns(rollout).findings) == []
        assert nemo_rl_turns(rollout).all_findings == ()
