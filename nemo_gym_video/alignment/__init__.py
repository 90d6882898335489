# SPDX-License-Identifier: Apache-2.0
"""The per-turn indexer; see ``docs/turns.md``."""

from nemo_gym_video.alignment.findings import FINDINGS, Finding
from nemo_gym_video.alignment.media_id import MediaRef
from nemo_gym_video.alignment.occurrences import Occurrence, Place, Skipped, Turn, TurnIndex
from nemo_gym_video.alignment.turns import index_turns

__all__ = ["FINDINGS", "Finding", "MediaRef", "Occurrence", "Place", "Skipped", "Turn", "TurnIndex", "index_turns"]
