"""What is known about running a checkpoint here: its revision, and what was and was not shown with it."""
