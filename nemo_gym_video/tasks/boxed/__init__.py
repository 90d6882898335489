# SPDX-License-Identifier: Apache-2.0
"""Multiple-choice questions with a boxed letter."""
