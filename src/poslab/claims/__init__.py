"""What is said of positional encodings, each claim judged by a computation or a study."""
