# SPDX-License-Identifier: Apache-2.0
"""The per-turn indexer; see ``docs/turns.md``."""

from nemo_gym_video.turns.index import index_turns
from nemo_gym_video.turns.media_id import MediaRef
from nemo_gym_video.turns.types import Finding, Occurrence, Place, Skipped, Turn, TurnIndex

__all__ = ["Finding", "MediaRef", "Occurrence", "Place", "Skipped", "Turn", "TurnIndex", "index_turns"]
