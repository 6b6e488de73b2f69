# The unit file of systemd names the command where it is installed, whatever the prefix that the build was configured with.
#   cmake -DBUILD=DIRECTORY -P service_unit.cmake
foreach(prefix /usr /opt/hearth)
  set(root ${BUILD}/service_unit)
  file(REMOVE_RECURSE ${root})
  set(ENV{DESTDIR} ${root})
  execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix} --component service
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(STRINGS ${root}${prefix}/lib/systemd/system/hearth.service line REGEX "^ExecStart=")
  file(REMOVE_RECURSE ${root})
  if(NOT line STREQUAL "ExecStart=${prefix}/bin/hearth serve --config /etc/hearth/serve.json")
    message(FATAL_ERROR "Installed to ${prefix}, the unit has ${line}")
  endif()
endforeach()
