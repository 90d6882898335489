# SPDX-License-Identifier: Apache-2.0
"""Video and image rollouts for NeMo Gym: agents, verifiers, token counts and per-turn media."""

__version__ = "0.1.0"
