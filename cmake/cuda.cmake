# The CUDA device: libhearth_cuda.so, which the library opens at run time (src/device/shared_device.h). Neither it nor the library is linked
# with a driver or with CUDA's runtime: the kernels are compiled for the GPUs below, and for later ones as PTX, into images within it.
set(HEARTH_CUDA_ARCHITECTURES -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a
    -gencode=arch=compute_90,code=compute_90 CACHE STRING "GPUs that the kernels are compiled for, as options of nvcc")

file(GLOB HEARTH_CUDA_KERNELS CONFIGURE_DEPENDS src/cuda/*.cu)
file(GLOB HEARTH_CUDA_SOURCES CONFIGURE_DEPENDS src/cuda/*.c)
set(HEARTH_CUDA_IMAGES)
set(HEARTH_CUDA_ASSEMBLY "/* Made by cmake/cuda.cmake. */\n")
foreach(source ${HEARTH_CUDA_KERNELS})
  get_filename_component(module ${source} NAME_WE)
  set(image ${CMAKE_CURRENT_BINARY_DIR}/cuda/${module}.fatbin)
  # As on the CPU, nothing is contracted, and denormals are flushed. The image is cut out of an object file, since a compiler cache
  # stores only those.
  add_custom_command(OUTPUT ${image}
    COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${HEARTH_NVCC} -std=c++17 -O3 -fmad=false -ftz=true ${HEARTH_CUDA_ARCHITECTURES}
            -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include -MD -MF ${image}.d -MT ${image}
            -c -o ${image}.o ${source}
    COMMAND ${CMAKE_OBJCOPY} -O binary --only-section=.nv_fatbin ${image}.o ${image}
    DEPENDS ${source} DEPFILE ${image}.d VERBATIM)
  list(APPEND HEARTH_CUDA_IMAGES ${image})
  string(APPEND HEARTH_CUDA_ASSEMBLY
    "__asm__(\".section .rodata\\n.balign 64\\n.globl ht_cuda_swizzled_${module}\\n.hidden ht_cuda_swizzled_${module}\\n\"\n"
    "        \"ht_cuda_swizzled_${module}:\\n.incbin \\\"${image}\\\"\\n.previous\\n\");\n")
endforeach()
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/cuda)
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/cuda/images.c CONTENT "${HEARTH_CUDA_ASSEMBLY}" @ONLY)
set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/cuda/images.c PROPERTIES OBJECT_DEPENDS "${HEARTH_CUDA_IMAGES}")

add_library(hearth_cuda SHARED ${HEARTH_CUDA_SOURCES} ${CMAKE_CURRENT_BINARY_DIR}/cuda/images.c $<TARGET_OBJECTS:hearth_ground>)
target_include_directories(hearth_cuda SYSTEM PRIVATE ${HEARTH_CUDA_INCLUDE})
target_link_libraries(hearth_cuda PRIVATE hearth_flags hearth_dependencies)
target_link_options(hearth_cuda PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/shared_device.map -Wl,-z,defs)
set_property(TARGET hearth_cuda APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/shared_device.map)
install(TARGETS hearth_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
