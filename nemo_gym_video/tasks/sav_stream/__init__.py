# SPDX-License-Identifier: Apache-2.0
"""Tracking through frames that arrive in chunks."""
