"""Bounded, typed reading of everything that others wrote.

Files are opened by ``files``, XML by ``markup``, configuration by ``options``;
JSON objects are read by ``fields``, single values by ``values``.  A reader
either returns values of the types and within the bounds that it was asked
for, or raises an ``InputError`` that names the file, the line or the path of
the field, and what is expected there.
"""
