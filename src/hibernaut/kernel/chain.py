"""Whether what is stored of a thread is what its receipts say: pages, receipts, the head, and the outbox."""

from collections.abc import Collection, Iterable

from hibernaut.codec import sha256
from hibernaut.errors import StoreCorrupt, VerificationFailed
from hibernaut.kernel.commit import kind_of_request
from hibernaut.kernel.receipt import Receipt, decode_receipt, next_history


class ChainCheck:
    """Recomputes the chain of one thread from its stored pages and receipts, taken in order.

    `start` is the digest that the chain of pages starts from (a child's: its parent's at the spawn point). Memory grows
    with the effects of the thread, not with its history.
    """

    def __init__(self, start: bytes = b"") -> None:
        self.version = 0
        """Receipts taken so far."""
        self.authority = b""
        """Digest of the authority that they named last."""
        self.owed = 0
        """Effects that they owe."""
        self._history = start
        self._previous = b""
        self._open: dict[str, int] = {}
        """Invocations that are neither settled nor cancelled, and the version that owes each."""
        self._loose: dict[str, int] = {}
        """Effects that may be over without a receipt: notices, and invocations that were cancelled."""
        self._settled: dict[str, int] = {}

    def take(self, page: bytes, stored: bytes) -> Receipt:
        """Check the next page and receipt.

        Raises:
            VerificationFailed: they do not fit to those before.
        """
        version = self.version = self.version + 1
        try:
            receipt = decode_receipt(stored)
        except StoreCorrupt as error:
            raise VerificationFailed(f"receipt {version} cannot be read", "receipt", version) from error
        if receipt.version != version:
            text = f"receipt {version} is missing: the next one stored is {receipt.version}"
            raise VerificationFailed(text, "order", version)
        if receipt.previous != self._previous:
            text = f"receipt {version} does not follow the one stored before it"
            raise VerificationFailed(text, "receipt", version)
        self._history = next_history(self._history, page)
        if receipt.history != self._history:
            text = f"the history at version {version} is not the one its receipt names"
            raise VerificationFailed(text, "page", version)
        self._previous = sha256(stored)
        self.authority = receipt.authority or self.authority
        self._note(receipt)
        return receipt

    def compare(self, history: bytes, receipts: bytes) -> None:
        """Compare the end of the chain with the digests of the head.

        Raises:
            VerificationFailed: they differ.
        """
        version = self.version
        if self._previous != receipts:
            text = f"the head names another last receipt than number {version}"
            raise VerificationFailed(text, "head", version)
        if self._history != history:
            raise VerificationFailed(f"the head names another history than receipt {version}", "head", version)

    def compare_authority(self, authority: bytes) -> None:
        """Compare the digest of the authority that the head names ("": the launch's) with what the receipts name.

        A fork or a child has one from its beginning; its first receipt names it.

        Raises:
            VerificationFailed: no operator has given it that one, or another one since.
        """
        if self.version and authority and authority != self.authority:
            raise VerificationFailed("the head names another authority than the receipts", "head", self.version)

    def compare_effects(self, outbox: Collection[str]) -> None:
        """Compare the outbox, by request ids, with what the receipts owe and settle.

        Raises:
            VerificationFailed: they differ.
        """
        for request in outbox:
            if request in self._open or request in self._loose:
                continue
            if request in self._settled:
                version = self._settled[request]
                text = f"effect {request} is in the outbox, and was settled at version {version}"
                raise VerificationFailed(text, "effect", version)
            raise VerificationFailed(f"effect {request} is in the outbox, and no receipt owes it", "effect")
        for request, version in self._open.items():
            if request not in outbox:
                text = f"effect {request}, owed at version {version}, is neither in the outbox nor settled"
                raise VerificationFailed(text, "effect", version)

    def _note(self, receipt: Receipt) -> None:
        for request in receipt.dispatched:
            self.owed += 1
            kind = kind_of_request(request)
            (self._open if kind == "invoke" else self._loose)[request] = receipt.version
            if kind == "cancel" and (call := request.removesuffix(":cancel")) in self._open:
                self._loose[call] = self._open.pop(call)
        for request in receipt.settled:
            self._open.pop(request, None)
            self._loose.pop(request, None)
            self._settled[request] = receipt.version


def verify_chain(rows: Iterable[tuple[bytes, bytes]], history: bytes, receipts: bytes, start: bytes = b"") -> int:
    """Recompute a thread's chain from its stored (page, receipt) rows and compare it with its head's digests.

    `start` is the digest that the chain starts from (a child's: its parent's at the spawn point). Returns the number of
    receipts.

    Raises:
        VerificationFailed: naming the first receipt that does not fit.
    """
    check = ChainCheck(start)
    for page, stored in rows:
        check.take(page, stored)
    check.compare(history, receipts)
    return check.version
