"""The launch configuration of a thread: what it was started with, stored by digest and shared.

Code is found again by name at resume; the configuration itself never changes.
"""

import msgspec

from hibernaut.codec import decoder_of, pack, sha256, unpack
from hibernaut.errors import ConfigurationError
from hibernaut.kernel.authority import Authority, check_authority
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.text import clean


class LaunchConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a thread was started with."""

    instructions: str = ""
    model: str = ""
    tools: tuple[str, ...] | None = None
    """Names of its tools, in the order the model is shown them; None: all that the program has which runs it."""
    tenant: str = ""
    user: str = ""
    """On whose behalf the thread works; other people who speak in it do not change that."""
    options: ThreadOptions = ThreadOptions()
    authority: Authority = Authority()
    servers: tuple[str, ...] | None = None
    """Names of the tool servers whose tools it has besides; None: of all that the program knows which runs it."""


_decoder = decoder_of(LaunchConfig)


def checked_config(config: LaunchConfig) -> LaunchConfig:
    """Return a configuration that can be stored and read again: its instructions cleaned, its types right.

    Raises:
        ConfigurationError: naming what is of another type than it should be, or cannot be meant.
    """
    try:
        config = msgspec.convert(msgspec.to_builtins(config), LaunchConfig)
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigurationError(f"a thread cannot be launched like this: {error}") from None
    if not (config.user + config.tenant + config.model).isprintable():
        raise ConfigurationError("user, tenant and model of a thread must be texts that can be shown")
    check_authority(config.authority)
    return msgspec.structs.replace(config, instructions=clean(config.instructions))


def encode_config(config: LaunchConfig) -> tuple[bytes, bytes]:
    """Return the digest and the bytes of a configuration."""
    data = pack(config)
    return sha256(data), data


def decode_config(data: bytes) -> LaunchConfig:
    """Read a configuration.

    Raises:
        StoreCorrupt: it is not one.
    """
    return unpack(data, _decoder, "a launch configuration")
