"""Messages between agents, schedulers and Watcher over oslo.messaging."""
