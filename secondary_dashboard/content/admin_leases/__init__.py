# SPDX-License-Identifier: Apache-2.0

"""Panel of the leases of all projects."""
