"""Nodes: their configurations, texts to import, instances of the engine, and real servers."""
