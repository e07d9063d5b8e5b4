"""Starting the processes of runs: the contract of a launcher, devices, and launchers/."""
