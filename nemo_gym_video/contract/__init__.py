# SPDX-License-Identifier: Apache-2.0
"""The row contract: what media a row carries and how many placeholder tokens its processor gives each region."""

from __future__ import annotations

from nemo_gym_video.contract.build import VideoSampling, build_contract, contract_of_row
from nemo_gym_video.contract.digest import message_digest
from nemo_gym_video.contract.items import CONTRACT_VERSION, ContractItem, ContractProcessor
from nemo_gym_video.contract.row_contract import CONTRACT_FIELD, RowContract

__all__ = [
    "CONTRACT_FIELD",
    "CONTRACT_VERSION",
    "ContractItem",
    "ContractProcessor",
    "RowContract",
    "VideoSampling",
    "build_contract",
    "contract_of_row",
    "message_digest",
]
