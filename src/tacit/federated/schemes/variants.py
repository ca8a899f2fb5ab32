"""Named variants of `ClippedChanges`, as in the literature."""

from tacit.federated.schemes.changes import ClippedChanges, Place


def local_averaging(*, clip: float, num_shards: int, shard_rows: int) -> ClippedChanges:
    """Local averaging: each shard is fitted as if it were all of a site's rows.

    Args:
        clip: Bound on the 2-norm of the change of one shard.
        num_shards: Number of shards of a site.
        shard_rows: The largest number of rows of a shard: a declared number.

    Returns:
        A scheme that releases the mean of the changes.
    """
    return ClippedChanges(
        clip=clip, protects="rows", num_shards=num_shards, shard_rows=shard_rows, average=True
    )


def virtual_clients(
    *, clip: float, num_shards: int, shard_rows: int, noise: Place = "site"
) -> ClippedChanges:
    """Virtual clients: each shard is a small site.

    Args:
        clip: Bound on the 2-norm of the change of one shard.
        num_shards: Number of shards of a site.
        shard_rows: The largest number of rows of a shard: a declared number.
        noise: Who adds the noise. ``"split"`` needs secure aggregation.

    Returns:
        A scheme that releases the sum of the changes.
    """
    return ClippedChanges(
        clip=clip, protects="rows", num_shards=num_shards, shard_rows=shard_rows, noise=noise
    )


def algorithm_three(*, clip: float, noise_multiplier: float) -> ClippedChanges:
    """Algorithm 3 of the report as printed, to reproduce it. No epsilon is claimed for it.

    Args:
        clip: Bound on the 2-norm of the change of a site.
        noise_multiplier: Noise of the sum, over clip.

    Returns:
        The scheme.
    """
    return ClippedChanges(
        clip=clip,
        noise="split",
        dishonest=0,
        centred=False,
        steady=False,
        own_factors=True,
        noise_multiplier=noise_multiplier,
    )
