"""The site's database: the configuration that several members share, in PostgreSQL.

Imported only on a device whose configuration has ``[cluster]``.
"""
