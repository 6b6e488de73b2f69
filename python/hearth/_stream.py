"""Devices and streams: where arrays are computed.

An array that is made while a program has chosen a stream (`stream=`, `with stream(s)`, `set_default_stream`) is computed on
that one, any other on the stream of the thread that evaluates it."""

import itertools

from . import _library as lib

__all__ = [
    "Device", "DeviceType", "Stream", "cpu", "gpu", "default_device", "set_default_device", "device_count", "is_available",
    "default_stream", "set_default_stream", "new_stream", "new_thread_local_stream", "stream", "StreamContext", "synchronize",
]  # fmt: skip

# ---- devices ----


class DeviceType:
    """A kind of device: `cpu`, or `gpu`, of which there is none."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"DeviceType.{self.name}"

    def __eq__(self, other):
        return self.name == (other.type.name if isinstance(other, Device) else getattr(other, "name", None))

    def __hash__(self):
        return hash(self.name)


cpu, gpu = DeviceType("cpu"), DeviceType("gpu")


class Device:
    """One device of a kind."""

    def __init__(self, type, index=0):
        self.type, self.index = type, index

    def __repr__(self):
        return f"Device({self.type.name}, {self.index})"

    def __eq__(self, other):
        if isinstance(other, DeviceType):
            return self.type == other
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self):
        return hash(self.type)


def the_cpu(device):
    if device is not None and not is_available(device):
        raise ValueError(f"there is no {device!r}: arrays are computed on the CPU")
    return Device(cpu)


def is_available(device):
    return device in (cpu, Device(cpu))


def device_count(device_type):
    return int(device_type == cpu)


def default_device():
    return Device(cpu)


def set_default_device(device):
    the_cpu(device)


# ---- streams ----

_numbers = itertools.count()


class Stream(lib.core.Queue):
    """A queue of evaluations, which it computes in the order of submission; what streams need of each other is computed once.
    """

    def __new__(cls):
        return super().__new__(cls, lib.device.value)

    def __init__(self):
        self.index, self.device = next(_numbers), Device(cpu)

    def __repr__(self):
        return f"Stream({self.device!r}, {self.index})"


def _queue_of(place):
    """The stream that `stream=` names: a device stands for this thread's own."""
    if isinstance(place, Stream):
        return place
    if not isinstance(place, (Device, DeviceType)):
        raise TypeError(f"{place!r} is no stream and no device")
    the_cpu(place)
    return default_stream()


def _start():
    lib.core.use(Stream(), False)
    lib.thread.leave  # which lets go of it when the thread ends


lib.core.hook(start=_start, queue_of=_queue_of)


def default_stream(device=None):
    """That of this thread."""
    the_cpu(device)
    return lib.core.current()[0]


def set_default_stream(stream):
    """For this thread."""
    lib.core.use(_queue_of(stream), True)
    lib.thread.leave


def new_stream(device=None):
    the_cpu(device)
    return Stream()


new_thread_local_stream = new_stream


class StreamContext:
    """What `stream(s)` gives: inside, s is this thread's default stream. A device stands for its default stream."""

    def __init__(self, s):
        self._stream = _queue_of(s)

    def __enter__(self):
        self._outer = lib.core.current()
        if self._stream is not self._outer[0]:
            lib.core.use(self._stream, True)
        return self._stream

    def __exit__(self, *_):
        lib.core.use(*self._outer)


def stream(s):
    return StreamContext(s)


def synchronize(stream=None):
    """Waits until everything submitted to the stream is computed."""
    (default_stream() if stream is None else _queue_of(stream))._synchronize()
