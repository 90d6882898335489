# SPDX-License-Identifier: Apache-2.0
"""From what a model put out to what counts of it: thinking, envelopes, strict JSON. Linear in the text."""
