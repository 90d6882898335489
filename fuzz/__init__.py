# SPDX-License-Identifier: Apache-2.0
"""Fuzzing of everything that reads model text or rows: ``python -m fuzz``."""
