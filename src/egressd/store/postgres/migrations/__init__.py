"""Revisions of the site's schema, each named ``pNNNN_what``, in one order with no downgrade."""
