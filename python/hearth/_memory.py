"""Evaluation, the memory that arrays take, and the machine."""

from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p

from . import _library as lib
from ._stream import the_cpu
from ._structs import ht_machine, ht_memory_stats
from ._tree import leaves

__all__ = [
    "device_info", "get_active_memory", "get_peak_memory", "reset_peak_memory", "get_cache_memory",
    "get_memory_limit", "set_memory_limit", "set_cache_limit", "set_wired_limit", "clear_cache",
]  # fmt: skip

lib.core.hook(evaluate=lambda trees, wait: lib.evaluate(leaves(trees), wait))

# ---- memory ----


_get = lib.declare("ht_memory_get", ht_memory_stats, c_void_p)
_limit = lib.declare("ht_memory_limit", c_size_t, c_void_p)
_set_limit = lib.declare("ht_memory_set_limit", c_size_t, c_void_p, c_size_t)
_set_cache_limit = lib.declare("ht_memory_set_cache_limit", c_size_t, c_void_p, c_size_t)
_set_wired_limit = lib.declare("ht_memory_set_wired_limit", c_size_t, c_size_t)
_reset_peak = lib.declare("ht_memory_reset_peak", None, c_void_p)
_clear_cache = lib.declare("ht_memory_clear_cache", None, c_void_p)


def get_active_memory():
    """Bytes in use by arrays."""
    return _get(lib.device).active_bytes


def get_peak_memory():
    """The most bytes in use since the last reset."""
    return _get(lib.device).peak_bytes


def reset_peak_memory():
    _reset_peak(lib.device)


def get_cache_memory():
    """Bytes of freed buffers that are kept for reuse."""
    return _get(lib.device).cache_bytes


def get_memory_limit():
    """0: none."""
    return _limit(lib.device)


def _bytes(limit):
    return lib.integer(limit, "a limit in bytes", *lib.UINT64)


def set_memory_limit(limit):
    """More bytes than this are never in use: what would need them raises MemoryError. 0: no limit. Returns the previous
    one."""
    return _set_limit(lib.device, _bytes(limit))


def set_cache_limit(limit):
    """More bytes than this are not kept for reuse. Returns the previous limit."""
    return _set_cache_limit(lib.device, _bytes(limit))


def set_wired_limit(limit):
    """Buffers up to this total stay in memory, as far as the system lets the process lock them. Returns the previous
    limit."""
    return _set_wired_limit(_bytes(limit))


def clear_cache():
    _clear_cache(lib.device)


# ---- the machine ----


_machine_read = lib.declare("ht_machine_read", None, POINTER(ht_machine))
_instruction_set = lib.declare("ht_device_instruction_set", c_char_p, c_void_p)
_threads = lib.declare("ht_device_threads", c_int, c_void_p)


def device_info(d=None):
    """What the device is: MLX's keys (`device_name`, `architecture`, `memory_size`, `total_memory`), cores, threads that
    compute, instruction set, and the sizes of caches in bytes."""
    the_cpu(d)
    m = ht_machine()
    _machine_read(byref(m))
    return {
        "device_name": m.processor.decode(), "architecture": m.architecture.decode(), "memory_size": m.memory_bytes,
        "total_memory": m.memory_bytes, "cores": m.cores, "threads": _threads(lib.device),
        "instruction_set": _instruction_set(lib.device).decode(), "l1_cache_size": m.l1_bytes,
        "l2_cache_size": m.l2_bytes, "l3_cache_size": m.l3_bytes,
    }  # fmt: skip
