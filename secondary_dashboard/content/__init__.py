# SPDX-License-Identifier: Apache-2.0

"""Panels, a package for each."""
