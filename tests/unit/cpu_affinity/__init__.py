# SPDX-License-Identifier: Apache-2.0

"""Choice of the CPUs of secondaries."""
