"""Training of one model; training that resumes from a checkpoint gives the same bits."""
