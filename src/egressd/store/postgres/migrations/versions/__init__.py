"""Revisions of the site's schema."""
