# The libraries that Hearth uses. PCRE2 matches pre-tokenizer patterns (docs/decisions/001), utf8proc normalizes to NFC, whose tables
# change every year, and zlib compresses .npz entries. The command adds libevent, OpenSSL, libcurl and libedit (002, 003).
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
