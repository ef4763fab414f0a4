"""The HTB trees of one direction: a class and a queue for each limited rule.

Classes are made, changed and dropped one by one; a tree is never rebuilt while it exists, since all
its clients would be unlimited meanwhile. A class is identified by its number, which determines its
tree, and whether that splits joined packets (`planner.shaping`).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import NetlinkError, NetlinkSocket
from egressd.netd.kernel.tc import device, messages
from egressd.netd.kernel.tc.messages import Class, Count, QdiscMessage
from egressd.planner.registry import HTB_TREE_CLASSES
from egressd.planner.shaping import (
    FRAME_BYTES,
    Shape,
    class_handle,
    class_number,
    splits,
    splitter_handle,
    tree_handle,
    tree_of,
)


class LeftOver(NamedTuple):
    """Unwanted classes and trees that `Forest.converge` found."""

    classes: list[int]
    trees: list[int]


class Forest:
    """Trees on IFBs whose names begin with `prefix`. Methods raise OSError if the kernel refuses,
    and Failed if a device of such a name is something else.
    """

    def __init__(self, kernel: NetlinkSocket, prefix: str) -> None:
        self._kernel = kernel
        self._prefix = prefix
        self._has_fair_queues = True
        """False once the kernel turned out to lack fq_codel."""
        self.devices: dict[int, int] = {}
        """Tree -> index of its device, as of the last look."""
        self._frame = FRAME_BYTES

    def open(self, number: int) -> None:
        """Make the tree of this class if it is not known."""
        if not self.has_device_of(number):
            self._open(tree_of(number))

    def fit(self, frame_bytes: int) -> None:
        """Take frames of that size from the LANs: a larger one was joined, and is split."""
        self._frame = frame_bytes
        for tree in filter(splits, self.devices):
            self._put_splitter(tree)

    def is_intact(self) -> bool:
        """Return whether all devices and the roots of all trees are unchanged."""
        return all(
            device.find(self._kernel, self._name(tree)) == index and self._is_planted(tree)
            for tree, index in self.devices.items()
        )

    def put(self, number: int, shape: Shape, *, is_new: bool) -> None:
        """Set the shape of a class, new or present; its tree is open.

        `is_new`: it has no queue of ours yet.
        """
        self._put_class(number, messages.class_of(shape))
        self._put_queue(number, shape, is_new=is_new)

    def drop(self, number: int) -> None:
        """Remove a class with its queue and the packets in it; do nothing if it doesn't exist."""
        try:
            self._kernel.request(uapi.RTM_DELTCLASS, self._address_of(number))
        except NetlinkError as error:
            if error.errno != errno.ENOENT:
                raise

    def converge(self, wanted: Mapping[int, Shape]) -> tuple[int, LeftOver]:
        """Put missing or different objects; return their number, and the objects left over.

        O(classes): all are read.
        """
        present = self._present_trees()
        trees = {tree_of(number) for number in wanted}
        self.devices.clear()
        put = sum(self._open(tree) for tree in sorted(trees))
        classes = dict(self._classes())
        queues = self._queues()
        if queues and all(queue.kind != messages.FQ_CODEL for queue in queues.values()):
            self._has_fair_queues = False  # an earlier netd found this
        for number, shape in wanted.items():
            if classes.get(number) != (right := messages.class_of(shape)):
                self._put_class(number, right)
                put += 1
            if not self._is_right(queues.get(number), number, shape):
                self._renew_queue(queues.get(number), number, shape)
                put += 1
        unwanted = [number for number in classes if number not in wanted]
        return put, LeftOver(unwanted, sorted(present - trees))

    def prune(self, left_over: LeftOver) -> int:
        """Remove the objects left over; return their number."""
        for number in left_over.classes:
            self.drop(number)
        for tree in left_over.trees:
            device.remove(self._kernel, self._name(tree))
        return len(left_over.classes) + len(left_over.trees)

    def counts(self) -> Iterator[tuple[int, Count]]:
        """Yield the traffic that each class has let pass."""
        for handle, passed in messages.decode_counts(self._class_bodies()):
            yield class_number(handle), passed

    def count(self, number: int) -> Count:
        """Return the traffic that one class has let pass. Raises OSError if it doesn't exist."""
        # To a request for one qdisc or class the kernel answers only with the echo flag.
        answers = self._kernel.request(
            uapi.RTM_GETTCLASS, self._address_of(number), uapi.NLM_F_ECHO
        )
        ((_, passed),) = messages.decode_counts(answers)
        return passed

    # --- Trees. -------------------------------------------------------------------------

    def _name(self, tree: int) -> str:
        return f"{self._prefix}{tree}"

    def _present_trees(self) -> set[int]:
        names = device.present(self._kernel, self._prefix)
        endings = (name.removeprefix(self._prefix) for name in names)
        return {int(ending) for ending in endings if ending.isdecimal()}

    def _open(self, tree: int) -> bool:
        """Make the device and the tree's root if they are missing; return True if any was made."""
        was_up = device.find(self._kernel, self._name(tree)) is not None
        self.devices[tree] = device.make(self._kernel, self._name(tree))
        is_planted = self._is_planted(tree)
        if splits(tree):
            self._put_splitter(tree)
        if not is_planted:
            root = messages.htb_root(self.devices[tree], tree_handle(tree), _above(tree))
            self._kernel.request(uapi.RTM_NEWQDISC, root, uapi.NLM_F_CREATE | uapi.NLM_F_REPLACE)
        return not (was_up and is_planted)

    def _put_splitter(self, tree: int) -> None:
        body = messages.splitter(self.devices[tree], splitter_handle(tree), self._frame)
        self._kernel.request(uapi.RTM_NEWQDISC, body, uapi.NLM_F_CREATE | uapi.NLM_F_REPLACE)

    def _is_planted(self, tree: int) -> bool:
        """Return whether the device has the tree's root, beneath the splitter if it has one."""
        if splits(tree) and self._qdisc(tree, uapi.TC_H_ROOT) != ("tbf", splitter_handle(tree)):
            return False
        return self._qdisc(tree, _above(tree)) == ("htb", tree_handle(tree))

    def _qdisc(self, tree: int, parent: int) -> tuple[str, int]:
        """Return kind and handle of the qdisc at `parent`; empty and 0 for none."""
        asked = messages.address(self.devices[tree], parent=parent)
        try:
            answers = self._kernel.request(uapi.RTM_GETQDISC, asked, uapi.NLM_F_ECHO)
        except NetlinkError as error:
            if error.errno != errno.ENOENT:
                raise
            return "", 0
        found = list(messages.decode_qdiscs(answers))
        return (found[0].kind, found[0].handle) if found else ("", 0)

    # --- Classes and queues. ------------------------------------------------------------

    def has_device_of(self, number: int) -> bool:
        """Return whether the device of the class's tree exists."""
        return tree_of(number) in self.devices

    def _address_of(self, number: int) -> bytes:
        return messages.address(self.devices[tree_of(number)], class_handle(number))

    def _classes(self) -> Iterator[tuple[int, Class]]:
        for handle, found in messages.decode_classes(self._class_bodies()):
            yield class_number(handle), found

    def _class_bodies(self) -> Iterator[bytes]:
        for tree, index in self.devices.items():
            listed = messages.address(index, parent=tree_handle(tree))
            yield from self._kernel.dump(uapi.RTM_GETTCLASS, listed)

    def _queues(self) -> dict[int, QdiscMessage]:
        """Return the qdiscs beneath classes, by the class's number."""
        majors = {index: tree_handle(tree) >> 16 for tree, index in self.devices.items()}
        bodies = self._kernel.dump(uapi.RTM_GETQDISC, messages.address(0))
        ours = (body for body in bodies if messages.interface_of(body) in majors)
        return {
            class_number(qdisc.parent): qdisc
            for qdisc in messages.decode_qdiscs(ours)
            if qdisc.parent >> 16 == majors[qdisc.ifindex]
        }

    def _is_right(self, queue: QdiscMessage | None, number: int, shape: Shape) -> bool:
        where = (_queue_handle(number), class_handle(number))
        return queue is not None and queue[1:] == (*where, *self._right_queue(shape))

    def _right_queue(self, shape: Shape) -> tuple[str, int]:
        """Return kind and limit of the qdisc beneath a class."""
        if self._has_fair_queues:
            return messages.FQ_CODEL, shape.queue
        return messages.fifo_of(shape)

    def _put_class(self, number: int, wanted: Class) -> None:
        index = self.devices[tree_of(number)]
        body = messages.htb_class(index, class_handle(number), wanted)
        self._kernel.request(uapi.RTM_NEWTCLASS, body, uapi.NLM_F_CREATE)

    def _renew_queue(self, queue: QdiscMessage | None, number: int, shape: Shape) -> None:
        """Replace a queue that is not as it should be."""
        if queue is not None:
            where = messages.address(queue.ifindex, queue.handle, queue.parent)
            self._kernel.request(uapi.RTM_DELQDISC, where)
        self._put_queue(number, shape, is_new=True)

    def _put_queue(self, number: int, shape: Shape, *, is_new: bool) -> None:
        index = self.devices[tree_of(number)]
        where = messages.address(index, _queue_handle(number), class_handle(number))
        try:
            queue = messages.fq_codel if self._has_fair_queues else messages.fifo
            body = where + queue(shape, is_new=is_new)
            self._kernel.request(uapi.RTM_NEWQDISC, body, uapi.NLM_F_CREATE | uapi.NLM_F_REPLACE)
        except NetlinkError as error:
            if error.errno != errno.ENOENT or not self._has_fair_queues:
                raise
            self._has_fair_queues = False
            self._put_queue(number, shape, is_new=is_new)


def _above(tree: int) -> int:
    """Return the parent of a tree's root."""
    return splitter_handle(tree) | 1 if splits(tree) else uapi.TC_H_ROOT


def _queue_handle(number: int) -> int:
    """Return the handle of the queue beneath a class, which is unique on its device."""
    return number % HTB_TREE_CLASSES << 16
