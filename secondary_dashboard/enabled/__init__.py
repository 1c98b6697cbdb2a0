# SPDX-License-Identifier: Apache-2.0

"""Files that an operator copies to enable the panels."""
