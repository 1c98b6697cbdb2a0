# SPDX-License-Identifier: Apache-2.0

"""Secondary (preemptible) instances on idle capacity of OpenStack hosts."""
