"""Images on their way to a model: fetched from their blobs, or replaced by a word where a model takes none."""

from collections.abc import Sequence

from msgspec.structs import replace

from hibernaut.errors import StoreCorrupt
from hibernaut.messages.items import Item, ResultItem, UserItem
from hibernaut.messages.parts import Image, Part, Text
from hibernaut.models.protocol import ModelInfo
from hibernaut.stores.protocol import Store

PLACEHOLDER = "[an image ({media_type}) that this model cannot see]"


class FittedItems:
    """A transcript with its images as models can take them, which grows as the transcript does."""

    __slots__ = ("items", "size")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.size = 0
        """Bytes of the images that were fetched."""

    async def extend(self, items: Sequence[Item], info: ModelInfo, store: Store) -> None:
        """Take the next items.

        Raises:
            StoreCorrupt: an image is not in the store. What came before it was taken.
        """
        for item in items:
            fitted = await _fit(item, info, store)
            if fitted is not item:
                self.size += _bytes(fitted) - _bytes(item)
            self.items.append(fitted)


async def fit_images(transcript: Sequence[Item], info: ModelInfo, store: Store) -> list[Item]:
    """Return a transcript with its images as the model can take them.

    Raises:
        StoreCorrupt: an image is not in the store.
    """
    fitted = FittedItems()
    await fitted.extend(transcript, info, store)
    return fitted.items


async def _fit(item: Item, info: ModelInfo, store: Store) -> Item:
    if not isinstance(item, UserItem | ResultItem) or isinstance(item.content, str):
        return item
    content = tuple([await _fit_part(part, info, store) for part in item.content])
    return item if content == item.content else replace(item, content=content)


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


def _bytes(item: Item) -> int:
    content = item.content if isinstance(item, UserItem | ResultItem) else ""
    return sum(len(part.data) for part in content if isinstance(part, Image)) if not isinstance(content, str) else 0
