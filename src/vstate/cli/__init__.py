"""The command `vstate`, one file per sub-command."""
