# SPDX-License-Identifier: Apache-2.0
"""Starts Gym's servers, collects rollouts, and stops everything again."""
