"""Partitioned variational inference: several sites, one posterior, no row leaves a site."""
