# SPDX-License-Identifier: Apache-2.0
"""``gym-video prepare caprl`` under the path where Gym's users look for a data set's script."""

import typer

from nemo_gym_video.commands.prepare import caprl

if __name__ == "__main__":
    typer.run(caprl)
