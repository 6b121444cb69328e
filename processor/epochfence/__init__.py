"""epochfence: a fence in front of every tool call that has a durable effect."""

__version__ = "0.1.0"
