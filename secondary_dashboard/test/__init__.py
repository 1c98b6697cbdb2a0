# SPDX-License-Identifier: Apache-2.0

"""Tests that need Horizon's own test helpers."""
