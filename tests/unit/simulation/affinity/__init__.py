# SPDX-License-Identifier: Apache-2.0

"""Guests on the CPUs of one host."""
