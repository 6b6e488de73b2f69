# Compiles for macOS on ARM with the cross compiler of the Python package ziglang: scripts/test-macos, which names it in ZIG_CC. Nothing is
# linked, as the dependencies' libraries are not there; their headers are the host's.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_C_COMPILER $ENV{ZIG_CC})
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_OSX_SYSROOT "")
