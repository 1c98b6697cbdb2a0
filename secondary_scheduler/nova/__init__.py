"""What runs inside nova-scheduler and nova-api (DESIGN.md decision 4).

Nothing here may raise into Nova, and no code path changes what happens to a
primary, except that secondaries are not counted against its hosts.
"""
