"""Watcher's services run on native threads; say so before any import."""

from oslo_service import backend

backend.init_backend(backend.BackendType.THREADING)
