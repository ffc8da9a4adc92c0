"""Images on their way to a model: fetched from their blobs, or replaced by a word where a model takes none."""

from collections.abc import Sequence

from msgspec.structs import replace

from hibernaut.errors import StoreCorrupt
from hibernaut.messages.items import Item, ResultItem, UserItem
from hibernaut.messages.parts import Image, Part, Text
from hibernaut.models.protocol import ModelInfo
from hibernaut.stores.protocol import Store

PLACEHOLDER = "[an image ({media_type}) that this model cannot see]"


async def fit_images(transcript: Sequence[Item], info: ModelInfo, store: Store) -> Sequence[Item]:
    """Return a transcript with its images as the model can take them."""
    return [await _fit(item, info, store) for item in transcript]


async def _fit(item: Item, info: ModelInfo, store: Store) -> Item:
    if not isinstance(item, UserItem | ResultItem) or isinstance(item.content, str):
        return item
    return replace(item, content=tuple([await _fit_part(part, info, store) for part in item.content]))


async def _fit_part(part: Part, info: ModelInfo, store: Store) -> Part:
    if not isinstance(part, Image):
        return part
    if not info.images:
        return Text(PLACEHOLDER.format(media_type=part.media_type))
    if part.blob and not part.data:
        data = await store.read_blob(part.blob)
        if data is None:
            raise StoreCorrupt(f"image {part.blob.hex()[:12]} is not in the store")
        return replace(part, data=data)
    return part
