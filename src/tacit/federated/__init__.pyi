from . import schemes as schemes
from .pooled import PooledScoring as PooledScoring
from .pvi import Partitioned as Partitioned
from .schemes import ClippedChanges as ClippedChanges
from .schemes import ClippedStatistics as ClippedStatistics
from .schemes import OneRelease as OneRelease
from .schemes import Optimised as Optimised
from .schemes import WithoutPrivacy as WithoutPrivacy
