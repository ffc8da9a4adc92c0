"""What a message is made of: text, images, and references to what is too large to carry along."""

import msgspec


class _Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class Text(_Part, frozen=True, tag="t"):
    """A piece of text, cleaned at the door (`hibernaut.messages.text.clean`)."""

    text: str


class Image(_Part, frozen=True, tag="i"):
    """A picture: its bytes, or the digest of a blob that holds them, or an address the provider can read."""

    media_type: str
    data: bytes = b""
    blob: bytes = b""
    url: str = ""


class Excerpt(_Part, frozen=True, tag="x"):
    """The head and tail of a text whose whole is in a blob."""

    text: str
    blob: bytes
    size: int


Part = Text | Image | Excerpt

Content = str | tuple[Part, ...]
"""One plain text (by far the most frequent, so it is stored bare), or parts in order."""


def plain_text(content: Content) -> str:
    """Return what can be read of a content: its texts and excerpts, an image as a word in brackets."""
    if isinstance(content, str):
        return content
    return "\n".join(f"[image: {part.media_type}]" if isinstance(part, Image) else part.text for part in content)


def is_blank(content: Content) -> bool:
    """Tell whether there is nothing in it that a model could read."""
    if isinstance(content, str):
        return not content or content.isspace()
    return all(not isinstance(part, Image) and not part.text.strip() for part in content)
