"""Kinds of columns: what is public about a column, and how its cells are encoded.

Bounds and levels are declared by a person before looking at the data. They must not be read from it: the
largest age in a table is somebody's age. A value outside the bounds is moved to the nearest bound, whatever
the other values are.
"""

from tacit.data.labels import Binary, Category
from tacit.data.numeric import Count, Number

Kind = Number | Count | Binary | Category
KINDS: dict[str, type[Kind]] = {kind.kind: kind for kind in (Number, Count, Binary, Category)}

__all__ = ["KINDS", "Binary", "Category", "Count", "Kind", "Number"]
