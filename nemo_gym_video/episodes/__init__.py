# SPDX-License-Identifier: Apache-2.0
"""Multi-turn environments without their server: what each turn's model output means and what comes back."""
