"""How stores keep bytes small: zstd, with a dictionary that knows what conversations look like.

A packed piece names its dictionary and its size, as zstd writes them. Dictionaries are files, numbered from 1 and never
changed, so what was packed with an older one is read for ever; new pieces are packed with the newest. They are made by
`scripts/make_dictionary.py`, from nothing but this project's own texts.
"""

import sys
from functools import cache
from pathlib import Path
from typing import Final

from hibernaut.errors import StoreCorrupt, StoreFormatTooNew

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["LARGEST", "Packer", "unpack", "zstd"]

LARGEST: Final = 64 * 1024 * 1024
"""Bytes of the largest piece that is packed. What claims to be larger is refused before anything is made of it."""

_BOUNDED: Final[dict[int, int]] = {zstd.DecompressionParameter.window_log_max: LARGEST.bit_length() - 1}

_DICTIONARIES: Final = Path(__file__).parent / "dictionaries"


class Packer:
    """Packs pieces one by one. Not to be used by two threads of the process at once."""

    def __init__(self, level: int) -> None:
        parameter = zstd.CompressionParameter
        options: dict[int, int] = {
            parameter.compression_level: level,
            parameter.content_size_flag: 1,
            parameter.dict_id_flag: 1,
        }
        self._compressor = zstd.ZstdCompressor(options=options, zstd_dict=_dictionary(_newest()).as_digested_dict)

    def pack(self, data: bytes) -> bytes | None:
        """Pack a piece; None: it would not get smaller, or is too large."""
        if len(data) > LARGEST:
            return None
        packed = self._compressor.compress(data, self._compressor.FLUSH_FRAME)
        return packed if len(packed) < len(data) else None


def unpack(packed: bytes) -> bytes:
    """Return the piece that was packed. It takes no more memory than the piece says that it is large.

    Raises:
        StoreFormatTooNew: a newer version of Hibernaut has packed it.
        StoreCorrupt: it is damaged, or is no packed piece.
    """
    try:
        info = zstd.get_frame_info(packed)
        size: int | None = info.decompressed_size
        if size is None or size > LARGEST:
            raise StoreCorrupt(f"a packed piece says that it is {size} bytes large; at most {LARGEST:,} may be")
        if not info.dictionary_id:
            raise StoreCorrupt("a packed piece names no dictionary")
        dictionary = _dictionary(info.dictionary_id).as_digested_dict
        decompressor = zstd.ZstdDecompressor(options=_BOUNDED, zstd_dict=dictionary)
        data = decompressor.decompress(packed, max_length=size)
    except zstd.ZstdError as error:
        raise StoreCorrupt(f"a packed piece cannot be read: {error}") from error
    if len(data) != size or not decompressor.eof or decompressor.unused_data:
        raise StoreCorrupt(f"a packed piece of {len(packed)} bytes is not the {size} bytes that it says")
    return data


@cache
def _dictionary(number: int) -> zstd.ZstdDict:
    """Return a dictionary.

    Raises:
        StoreFormatTooNew: it is not known here.
    """
    path = _DICTIONARIES / f"{number}.zdict"
    if not path.is_file():
        raise StoreFormatTooNew(f"a piece is packed with dictionary {number}, which only a newer Hibernaut has")
    return zstd.ZstdDict(path.read_bytes())


@cache
def _newest() -> int:
    return max(int(path.stem) for path in _DICTIONARIES.glob("[0-9]*.zdict"))
