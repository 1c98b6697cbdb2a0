# SPDX-License-Identifier: Apache-2.0

"""Tests of a cloud, discovered by Tempest."""
