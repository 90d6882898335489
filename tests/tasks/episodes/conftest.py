# SPDX-License-Identifier: Apache-2.0
from tests.media.conftest import make_clip, read_number

__all__ = ["make_clip", "read_number"]
