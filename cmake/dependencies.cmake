# The libraries Hearth is built on; docs/decisions.md says why each one.
find_package(Threads REQUIRED)
if(HEARTH_KERNELS_ONLY)
  add_library(hearth_dependencies INTERFACE)
  target_link_libraries(hearth_dependencies INTERFACE Threads::Threads m)
  return()
endif()
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)

add_library(hearth_dependencies INTERFACE)
target_link_libraries(hearth_dependencies INTERFACE
  Threads::Threads m ${CMAKE_DL_LIBS} PkgConfig::PCRE2 PkgConfig::UTF8PROC
  PkgConfig::ZLIB)
