# SPDX-License-Identifier: Apache-2.0

"""The policy language, and triggers that count failed checks."""
