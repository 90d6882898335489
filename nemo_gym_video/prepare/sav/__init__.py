# SPDX-License-Identifier: Apache-2.0
"""SA-V as published, to rows."""
