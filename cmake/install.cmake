# What `cmake --install` puts in place: headers, both libraries, the command, the pkg-config file and the licence.
file(RELATIVE_PATH HEARTH_PC_TO_PREFIX
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" HEARTH_PC_TO_PREFIX "${HEARTH_PC_TO_PREFIX}")
configure_file(cmake/hearth.pc.in ${CMAKE_BINARY_DIR}/hearth.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/hearth.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY include/hearth DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS hearth_static hearth_shared
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET hearth)
  install(TARGETS hearth RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    # The unit names the command where it is installed: packages and `cmake --install --prefix` have another prefix than the build.
    install(CODE "
      cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_PREFIX OUTPUT_VARIABLE prefix)
      cmake_path(APPEND prefix \"${CMAKE_INSTALL_BINDIR}\" OUTPUT_VARIABLE HEARTH_BINDIR)
      configure_file(\"${PROJECT_SOURCE_DIR}/cmake/hearth.service.in\" \"${CMAKE_BINARY_DIR}/hearth.service\" @ONLY)"
      COMPONENT service)
    install(FILES ${CMAKE_BINARY_DIR}/hearth.service cmake/hearth.socket DESTINATION lib/systemd/system COMPONENT service)
  endif()
  if(NOT CMAKE_CROSSCOMPILING AND NOT HEARTH_SANITIZE)
    add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/share/made
      COMMAND ${CMAKE_COMMAND} -DHEARTH=$<TARGET_FILE:hearth> -DOUT=${CMAKE_BINARY_DIR}/share -P ${PROJECT_SOURCE_DIR}/cmake/pages.cmake
      DEPENDS hearth ${PROJECT_SOURCE_DIR}/cmake/pages.cmake VERBATIM)
    add_custom_target(hearth_pages ALL DEPENDS ${CMAKE_BINARY_DIR}/share/made)
    install(DIRECTORY ${CMAKE_BINARY_DIR}/share/ DESTINATION ${CMAKE_INSTALL_DATADIR} PATTERN made EXCLUDE)
  endif()
endif()
