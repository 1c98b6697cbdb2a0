# SPDX-License-Identifier: Apache-2.0

"""Panel of accounts."""
