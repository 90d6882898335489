# SPDX-License-Identifier: Apache-2.0
"""CAPRL questions as published, to rows."""
