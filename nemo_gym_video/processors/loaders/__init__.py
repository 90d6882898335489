# SPDX-License-Identifier: Apache-2.0
"""The engine's video loaders: which frames of a clip vLLM reads, and whether they are sampled once more."""
