# SPDX-License-Identifier: Apache-2.0

"""Array types, and the end of time."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: A time after all others; intervals that end then have no end.
NEVER = 2 ** 60
