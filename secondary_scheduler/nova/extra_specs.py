"""Validators of ``lifecycle:*`` (namespace nova.api.extra_spec_validators).

Nova asks them from microversion 2.86 on only; what was set before, or with
an older client, is found by ``secondary-scheduler flavor check``.
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
                'primaries leave idle, and give way when policies demand it. '
                'Goes with resources:CUSTOM_SECONDARY_*; "secondary-'
                'scheduler flavor create" sets both.'),
            value={'type': bool,
                   'description': 'Whether instances may be preempted.'}),
        base.ExtraSpecValidator(
            name=vocabulary.PREEMPT_POLICY,
            description='How a secondary gives way if it cannot be moved.',
            value={'type': str,
                   'enum': [str(p) for p in vocabulary.PreemptPolicy],
                   'description': 'What is done to the instance.'}),
        base.ExtraSpecValidator(
            name=vocabulary.PRIORITY,
            description=(
                'Which secondaries give way first: those with the lowest '
                'priority.'),
            value={'type': int,
                   'min': vocabulary.LOWEST_PRIORITY,
                   'max': vocabulary.HIGHEST_PRIORITY,
                   'description': 'The priority, 1 gives way first.'}),
    ]
