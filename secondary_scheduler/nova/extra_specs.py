# SPDX-License-Identifier: Apache-2.0

"""Validators of ``lifecycle:*`` (namespace nova.api.extra_spec_validators).

Nova calls them from microversion 2.86 on only.  ``secondary-scheduler flavor
check`` finds invalid values that were set before, or by an older client.
"""

from nova.api.validation.extra_specs import base

from secondary_scheduler.model import vocabulary


def register() -> list[base.ExtraSpecValidator]:
    """Return the validators."""
    return [
        base.ExtraSpecValidator(
            name=vocabulary.MARKER,
            description=(
                'Whether the instances are secondary: they use capacity that '
                'primaries leave idle, and are preempted when policies demand '
                'it. Requires resources:CUSTOM_SECONDARY_*; "secondary-'
                'scheduler flavor create" sets both.'),
            value={'type': bool,
                   'description': 'Whether instances may be preempted.'}),
        base.ExtraSpecValidator(
            name=vocabulary.PREEMPT_POLICY,
            description='Operation that preempts an instance which cannot be '
                        'migrated.',
            value={'type': str,
                   'enum': [str(p) for p in vocabulary.PreemptPolicy],
                   'description': 'The operation on the instance.'}),
        base.ExtraSpecValidator(
            name=vocabulary.PRIORITY,
            description=(
                'Order of preemption: instances with the lowest priority are '
                'preempted first.'),
            value={'type': int,
                   'min': vocabulary.LOWEST_PRIORITY,
                   'max': vocabulary.HIGHEST_PRIORITY,
                   'description': 'The priority; 1 is preempted first.'}),
        base.ExtraSpecValidator(
            name=vocabulary.WORKLOAD_CLASS,
            description=(
                'Class of the load of the instances, as it is named in the '
                'profiles of the agents. Agents predict with it how much '
                'instances slow down each other.'),
            value={'type': str,
                   'description': 'The name of the class.'}),
    ]
