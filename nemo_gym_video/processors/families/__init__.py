# SPDX-License-Identifier: Apache-2.0
"""The processor families, one module each. To add one, write its module and add its line to ``FAMILIES``."""

from __future__ import annotations

from nemo_gym_video.processors.families.base import ProcessorSettings
from nemo_gym_video.processors.families.gemma4 import Gemma4Settings
from nemo_gym_video.processors.families.hf import HfSettings
from nemo_gym_video.processors.families.internvl import InternVLSettings
from nemo_gym_video.processors.families.nemotron_nano_vl import NemotronNanoVLSettings
from nemo_gym_video.processors.families.nemotron_omni import NemotronOmniSettings
from nemo_gym_video.processors.families.qwen3_vl import Qwen3VLSettings
from nemo_gym_video.processors.families.qwen_vl import Qwen2VLSettings, Qwen25VLSettings

# A checkpoint is of the first family here that recognises it.
FAMILIES: dict[str, type[ProcessorSettings]] = {
    "nemotron_omni": NemotronOmniSettings,
    "nemotron_nano_vl": NemotronNanoVLSettings,
    "qwen2_vl": Qwen2VLSettings,
    "qwen2_5_vl": Qwen25VLSettings,
    "qwen3_vl": Qwen3VLSettings,
    "internvl": InternVLSettings,
    "gemma4": Gemma4Settings,
    "hf": HfSettings,
}
