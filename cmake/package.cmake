# A Debian package of what `cmake --install` puts in place: `cpack -G DEB` in the build directory (scripts/test-package).
set(CPACK_PACKAGE_NAME hearth)
set(CPACK_PACKAGE_VENDOR Hearth)
set(CPACK_PACKAGE_CONTACT "The Hearth developers <hearth@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs and fine-tunes language models on your own machine")
set(CPACK_PACKAGE_DESCRIPTION "Llama, Qwen and Gemma checkpoints, straight from GGUF and safetensors files, on the CPU or
 an NVIDIA GPU, as a command, hearth, and as a C library.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON) # and has ldconfig run
include(CPack)
