"""The processor's own log: one JSON object a line on standard error. Never a payload, an argument or a secret."""

import logging
import sys

import structlog

_SHOWN_LIBRDKAFKA = logging.ERROR
"""librdkafka reports every failed connection as an error of its own; the processor says what matters itself."""


def configure_logs(level: int = logging.INFO) -> None:
    """Send structlog's events, and librdkafka's worst, to standard error."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.getLogger("epochfence.librdkafka").setLevel(_SHOWN_LIBRDKAFKA)
