# SPDX-License-Identifier: Apache-2.0

"""Pure lease scheduler, after Haizea (Sotomayor 2010)."""
