"""What the cloud looks like to every part of the plug-in, as plain values.

Nothing here performs I/O, reads a clock or imports OpenStack: the scheduler,
the strategies, the agent, the simulator and the tests share these values.
"""
