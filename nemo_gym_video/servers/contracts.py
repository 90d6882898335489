# SPDX-License-Identifier: Apache-2.0
"""The contracts of an agent's rows: kept when a row carries one, built when a processor is configured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from nemo_gym_video.contract import ContractItem, RowContract, VideoSampling, build_contract, contract_of_row
from nemo_gym_video.errors import Where
from nemo_gym_video.media.decoder import BoundedDecoder
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.processors.presets import load_settings
from nemo_gym_video.servers.agent_config import VideoAgentConfig
from nemo_gym_video.servers.emit import Emission


class ContractMaker:
    """Makes contracts under one configuration. Opens and probes media: call it off an event loop."""

    def __init__(self, config: VideoAgentConfig, sources: MediaSources) -> None:
        """Load the processor's settings; a ``ProcessorSettingsError`` says what is wrong with them."""
        self._config = config
        self._sources = sources
        self._settings = None
        if config.processor is not None:
            self._settings = load_settings(config.processor, overrides=config.processor_overrides)
        sampling = config.video_sampling
        self._options: dict[str, Any] = {
            "sampling": VideoSampling(convention=sampling.convention, num_frames=sampling.num_frames,
                                 target_fps=sampling.target_fps),
            "tagged_as": "images" if config.tagged_frames == "images" else "video",
            "allow_mixed": config.allow_mixed,
            "allow_many_sources": config.allow_mixed,
            "decoder": BoundedDecoder(),
        }  # fmt: skip

    def of_row(self, row: Mapping[str, Any], emission: Emission, where: Where) -> RowContract | None:
        """The row's contract as the engine will count it; None without a processor and without a carried one."""
        if self._config.tagged_frames == "source_video" and emission.mode == "tagged_frames":
            # The engine samples the source itself: what the row says of its frames does not hold for it.
            return self._built(emission.messages, where) if self._settings is not None else None
        return contract_of_row(row, sources=self._sources, settings=self._settings,
                               max_model_len=self._config.max_model_len, where=where, **self._options)  # fmt: skip

    def of_observation(self, messages: Sequence[Any], turn: int) -> tuple[ContractItem, ...]:
        """The items that an environment brings before model call ``turn``, as yet without counts."""
        options = {**self._options, "allow_mixed": True, "allow_many_sources": True}
        contract = build_contract(list(messages), sources=self._sources, **options)
        return tuple(dataclasses.replace(item, turn=turn) for item in contract.items)

    def _built(self, messages: Sequence[Any], where: Where) -> RowContract:
        return build_contract(list(messages), sources=self._sources, settings=self._settings,
                              max_model_len=self._config.max_model_len, where=where, **self._options)  # fmt: skip
