# SPDX-License-Identifier: Apache-2.0
"""The environments of this package as they are found by name."""

from pathlib import Path

import pytest

from nemo_gym_video.errors import ServerStartError
from nemo_gym_video.launch.catalogue import TaskReference, environment_names, load_environment
from nemo_gym_video.servers.gym_root import search_root

ROOTS = (search_root(),)
AGENTS = {
    "caprl_mcqa": "mcqa_simple_agent",
    "sav_pt_tracks": "sav_pt_tracks_agent",
    "sav_box_tracks": "sav_box_tracks_agent",
    "sav_ref_tracks": "sav_ref_tracks_agent",
}


@pytest.mark.parametrize(("name", "agent"), AGENTS.items())
def test_published_rows_find_their_agent(name: str, agent: str) -> None:
    environment = load_environment(name, ROOTS)
    (instance,) = environment.agents
    assert (instance.name, instance.environment, instance.implementation) == (agent, name, "video_agent")
    assert instance.media_roots == (search_root() / "environments" / name / "data",)
    assert environment.examples == ((agent, search_root() / f"environments/{name}/data/example.jsonl"),)


def test_the_mixed_environment_has_all_four() -> None:
    environment = load_environment("video_grpo", ROOTS)
    assert {agent.name: agent.environment for agent in environment.agents} == {v: k for k, v in AGENTS.items()}
    ((agent, file),) = environment.examples
    assert (agent, file.parent.parent.name) == ("mcqa_simple_agent", "video_grpo")
    caprl = next(agent for agent in environment.agents if agent.name == "mcqa_simple_agent")
    assert caprl.media_roots == (search_root() / "environments/caprl_mcqa/data",)


@pytest.mark.parametrize("name", ["caprl", "", "..", "../environments/caprl_mcqa"])
def test_an_unknown_name_is_told_what_there_is(name: str) -> None:
    with pytest.raises(ServerStartError, match=r"environment was not found.*caprl_mcqa.* \(in /"):
        load_environment(name, ROOTS)


def test_names_are_listed() -> None:
    assert set(AGENTS) | {"video_grpo"} <= set(environment_names(ROOTS))


def test_a_broken_configuration_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "environments" / "broken"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("a: [")
    with pytest.raises(ServerStartError, match="cannot be read"):
        load_environment("broken", (tmp_path,))
    (folder / "config.yaml").write_text("3")
    with pytest.raises(ServerStartError, match="not a YAML mapping"):
        load_environment("broken", (tmp_path,))


def test_environments_elsewhere_stand_beside_ours(tmp_path: Path) -> None:
    folder = tmp_path / "environments" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        "mine_agent:\n  responses_api_agents:\n    video_agent:\n      environment: mine\n"
        "      media_roots: [data, /absolute]\n      resources_server: {type: resources_servers, name: mine}\n"
        "      datasets:\n      - {name: example, type: example, jsonl_fpath: environments/mine/data/rows.jsonl}\n"
        "mine:\n  resources_servers:\n    video_verifier:\n      task: task.py:Mine\n      task_settings: {a: 1}\n"
    )
    (folder / "data").mkdir()
    (folder / "data" / "rows.jsonl").write_text("")
    roots = (tmp_path / "empty", tmp_path, search_root())
    mine = load_environment("mine", roots)
    assert (mine.folder, mine.examples) == (folder, (("mine_agent", folder / "data" / "rows.jsonl"),))
    (agent,) = mine.agents
    assert agent.media_roots == (folder / "data", Path("/absolute"))
    assert agent.task == TaskReference(reference=f"{folder / 'task.py'}:Mine", settings={"a": 1})
    assert load_environment("caprl_mcqa", roots).folder.is_relative_to(search_root())
    with pytest.raises(ServerStartError) as caught:
        load_environment("other", roots)
    said = str(caught.value)
    assert f"mine (in {tmp_path}); caprl_mcqa," in said
    assert f"none below {tmp_path / 'empty'}" in said
