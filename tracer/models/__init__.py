"""Models for `vstate trace run`, built locally from configurations, without a hub."""
