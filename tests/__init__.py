# SPDX-License-Identifier: Apache-2.0

"""All tests.

Property tests draw the same examples in every run, so that a run that failed
can be repeated and an unrelated change never fails; ``tox -e properties``
draws many more, and new ones.
"""

import os

import hypothesis

hypothesis.settings.register_profile(
    'repeatable', derandomize=True, max_examples=300, deadline=None,
    database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile(
    'search', hypothesis.settings.get_profile('repeatable'),
    derandomize=False, max_examples=10000)
hypothesis.settings.load_profile(
    os.environ.get('HYPOTHESIS_PROFILE', 'repeatable'))
