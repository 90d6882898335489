# SPDX-License-Identifier: Apache-2.0
"""Questions about a long clip that the model explores by asking for parts of it."""
