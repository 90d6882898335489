# SPDX-License-Identifier: Apache-2.0
"""The tasks: what a row asks, how an answer is scored, and what an environment says between turns."""
