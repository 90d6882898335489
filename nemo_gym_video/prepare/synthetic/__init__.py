# SPDX-License-Identifier: Apache-2.0
"""Clips with known truth, in the published layouts."""
