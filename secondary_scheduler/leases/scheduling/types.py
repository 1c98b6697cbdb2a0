"""Arrays, and the end of time."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: A time after all others: what lasts until then lasts for ever.
NEVER = 2 ** 60
