# SPDX-License-Identifier: Apache-2.0
"""Environment variables that servers read, named where importing them costs nothing."""

from __future__ import annotations

MEDIA_ROOTS_VARIABLE = "NEMO_GYM_VIDEO_MEDIA_ROOTS"
"""More media roots for every server, separated as in ``PATH``."""

MEDIA_STORE_VARIABLE = "NEMO_GYM_VIDEO_MEDIA_STORE"
"""The media store of servers that configure none."""
