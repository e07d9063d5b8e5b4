"""Where the processes of runs are started: the contract of a launcher, devices, and launchers/."""
