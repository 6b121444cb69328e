"""Settings: `epochfence.toml`, then `EPOCHFENCE_…` variables, then the options of a command; the later one wins."""

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from epochfence.errors import UsageError

SETTINGS_FILE = Path("epochfence.toml")


class Settings(BaseSettings):
    """Everything that an operator may set. Times are milliseconds, sizes bytes."""

    model_config = SettingsConfigDict(env_prefix="EPOCHFENCE_", extra="forbid", toml_file=SETTINGS_FILE)

    bootstrap_servers: str | None = None
    """Where the cluster is. Unset: the broker that `epochfence broker start` runs on this machine."""
    topic_prefix: str = "epochfence."
    """Begins the name of every topic, of the group and of the transactional ids."""
    slot: str = Field(default="main", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """Name of the worker slots of this `run`; two processes must not have the same."""
    retention_ms: int = Field(default=86_400_000, ge=1)
    """How long a closed call is remembered, in stream time. Also how old a ToolCall may be."""
    max_body_bytes: int = Field(default=262_144, ge=1, le=1_000_000)
    """The largest arguments or payload."""
    commit_interval_ms: int = Field(default=100, ge=1, le=5_000)
    """Longest time from the first decision of a transaction to its commit."""
    transaction_timeout_ms: int = Field(default=10_000, ge=2_000, le=900_000)
    """After this the cluster aborts a transaction whose processor has stopped."""
    session_timeout_ms: int = Field(default=10_000, ge=6_000, le=1_800_000)
    """After this the cluster gives the partitions of a processor that has stopped to others."""
    watchdog: bool = True
    """Ask to end epochs that stay open, so that a call ends though its planner be dead."""
    watchdog_grace_ms: int = Field(default=30_000, ge=100)
    """How long beyond its timeout_ms an epoch may stay open before the watchdog asks, and until it asks again."""
    schema_registry_url: str | None = None
    """A registry with the Confluent API. Needed only to read values in Confluent's framing."""
    kafka: dict[str, Any] = Field(default_factory=dict)
    """Any librdkafka property, passed through to every client: security, addresses, statistics."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(**options: Any) -> Settings:
    """The settings in force. `options` that are None were not given.

    Raises UsageError, naming the setting, when one does not fit. Values are not repeated: they may be secrets.
    """
    try:
        return Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise UsageError(f"a setting does not fit: {wrong}") from None
    except ValueError as error:  # an epochfence.toml that is no TOML, or a variable that is no JSON
        raise UsageError(f"the settings cannot be read: {error}") from None
