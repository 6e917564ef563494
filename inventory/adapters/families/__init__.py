"""The families that are known here: each module has an `ADAPTER`."""
