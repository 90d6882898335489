# SPDX-License-Identifier: Apache-2.0
"""``gym-video prepare sav`` under the path where Gym's users look for a data set's script."""

import typer

from nemo_gym_video.commands.prepare import sav

if __name__ == "__main__":
    typer.run(sav)
