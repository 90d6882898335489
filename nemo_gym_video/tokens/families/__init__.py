# SPDX-License-Identifier: Apache-2.0
"""The processor families, one module each. To add one, write its module and add its line to ``FAMILIES``."""

from __future__ import annotations

from nemo_gym_video.tokens.families.base import ProcessorSettings
from nemo_gym_video.tokens.families.nemotron_omni import NemotronOmniSettings

FAMILIES: dict[str, type[ProcessorSettings]] = {
    "nemotron_omni": NemotronOmniSettings,
}
