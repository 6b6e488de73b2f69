"""Devices, streams, evaluation, and the memory that arrays take."""

import ctypes
import threading
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_int, c_size_t

from . import _library as lib
from ._tree import leaves

__all__ = [
    "Device", "DeviceType", "Stream", "cpu", "gpu", "default_device", "set_default_device", "device_count", "device_info",
    "is_available", "default_stream", "set_default_stream", "new_stream", "new_thread_local_stream", "stream",
    "StreamContext", "synchronize", "eval", "async_eval", "get_active_memory", "get_peak_memory", "reset_peak_memory",
    "get_cache_memory", "get_memory_limit", "set_memory_limit", "set_cache_limit", "set_wired_limit", "clear_cache",
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


def _the_cpu(device):
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
    _the_cpu(device)


class _Machine(Structure):
    """ht_machine."""

    _fields_ = [
        ("processor", c_char * 128), ("architecture", c_char * 32), ("cores", c_int), ("online", c_int),
        ("memory_bytes", c_size_t), ("l1_bytes", c_size_t), ("l2_bytes", c_size_t), ("l3_bytes", c_size_t),
        ("huge_pages", c_char * 16),
    ]  # fmt: skip


_machine_read = lib.declare("ht_machine_read", None, POINTER(_Machine))
_instruction_set = lib.declare("ht_device_instruction_set", c_char_p, ctypes.c_void_p)
_threads = lib.declare("ht_device_threads", c_int, ctypes.c_void_p)


def device_info(d=None):
    """What the device is: MLX's keys (`device_name`, `architecture`, `memory_size`, `total_memory`), cores, threads that
    compute, instruction set, and the sizes of caches in bytes."""
    _the_cpu(d)
    m = _Machine()
    _machine_read(byref(m))
    return {
        "device_name": m.processor.decode(), "architecture": m.architecture.decode(), "memory_size": m.memory_bytes,
        "total_memory": m.memory_bytes, "cores": m.cores, "threads": _threads(lib.device),
        "instruction_set": _instruction_set(lib.device).decode(), "l1_cache_size": m.l1_bytes,
        "l2_cache_size": m.l2_bytes, "l3_cache_size": m.l3_bytes,
    }  # fmt: skip


# ---- streams ----

_synchronize = lib.declare("ht_stream_synchronize", None, ctypes.c_void_p)


class Stream:
    """A queue of evaluations. What is evaluated while it is the default is computed on it, in the order of submission;
    what streams need of each other is computed once."""

    _count, _lock = 0, threading.Lock()

    def __init__(self, queue):
        with Stream._lock:
            self.index, Stream._count = Stream._count, Stream._count + 1
        self.device, self._queue = Device(cpu), queue

    def __repr__(self):
        return f"Stream({self.device!r}, {self.index})"

    def __eq__(self, other):
        return isinstance(other, Stream) and self._queue is other._queue

    def __hash__(self):
        return id(self._queue)


def default_stream(device=None):
    """That of this thread."""
    _the_cpu(device)
    known = getattr(lib.thread.queue, "stream", None)
    if known is None:
        known = lib.thread.queue.stream = Stream(lib.thread.queue)
    return known


def set_default_stream(stream):
    """For this thread."""
    lib.thread.use(stream._queue)
    stream._queue.stream = stream


def new_stream(device=None):
    _the_cpu(device)
    return Stream(lib.Queue())


new_thread_local_stream = new_stream


class StreamContext:
    """What `stream(s)` gives: inside, s is this thread's default stream. A device stands for its default stream."""

    def __init__(self, s):
        self._stream = s if isinstance(s, Stream) else None
        if self._stream is None:
            _the_cpu(s)

    def __enter__(self):
        self._outer = default_stream()
        if self._stream is not None:
            set_default_stream(self._stream)
        return self._stream

    def __exit__(self, *_):
        set_default_stream(self._outer)


def stream(s):
    return StreamContext(s)


def synchronize(stream=None):
    """Waits until everything submitted to the stream is computed."""
    queue = stream._queue if isinstance(stream, Stream) else lib.thread.queue
    _synchronize(queue.handle)


# ---- evaluation ----


def eval(*trees):
    """Computes every array in the arguments, which may be nested in lists, tuples and dicts."""
    lib.evaluate([a._handle for a in leaves(trees)])


def async_eval(*trees):
    """The same without waiting; whoever reads an array waits for it."""
    lib.evaluate_async([a._handle for a in leaves(trees)])


# ---- memory ----


class _Stats(Structure):
    """ht_memory_stats."""

    _fields_ = [("active", c_size_t), ("peak", c_size_t), ("cache", c_size_t), ("wired", c_size_t)]


_get = lib.declare("ht_memory_get", _Stats)
_limit = lib.declare("ht_memory_limit", c_size_t)
_setters = {
    name: lib.declare(f"ht_memory_set_{name}", c_size_t, c_size_t) for name in ("limit", "cache_limit", "wired_limit")
}
_reset_peak = lib.declare("ht_memory_reset_peak", None)
_clear_cache = lib.declare("ht_memory_clear_cache", None)


def get_active_memory():
    """Bytes in use by arrays."""
    return _get().active


def get_peak_memory():
    """The most bytes in use since the last reset."""
    return _get().peak


def reset_peak_memory():
    _reset_peak()


def get_cache_memory():
    """Bytes of freed buffers that are kept for reuse."""
    return _get().cache


def get_memory_limit():
    """0: none."""
    return _limit()


def _set(name, limit):
    if limit < 0:
        raise ValueError(f"a limit of {limit} bytes is negative")
    return _setters[name](limit)


def set_memory_limit(limit):
    """More bytes than this are never in use: what would need them raises MemoryError. 0: no limit. Returns the previous
    one."""
    return _set("limit", limit)


def set_cache_limit(limit):
    """More bytes than this are not kept for reuse. Returns the previous limit."""
    return _set("cache_limit", limit)


def set_wired_limit(limit):
    """Buffers up to this total stay in memory, as far as the system lets the process lock them. Returns the previous
    limit."""
    return _set("wired_limit", limit)


def clear_cache():
    _clear_cache()
