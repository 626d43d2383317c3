# SPDX-License-Identifier: Apache-2.0
# Runs at install time, when the prefix is certain: the configuration and the units, which name paths. A prefix of /usr has its
# configuration in /etc, any other in PREFIX/etc. A configuration file that is there already is somebody's and stays.
#
# Set by the caller: CONCLAVE_SOURCE, CONCLAVE_BUILD, CONCLAVE_BINDIR (relative).
get_filename_component(prefix "${CMAKE_INSTALL_PREFIX}" ABSOLUTE)
set(etc "${prefix}/etc")
if(prefix STREQUAL "/usr")
  set(etc "/etc")
endif()
set(BINDIR "${prefix}/${CONCLAVE_BINDIR}")
set(CONFDIR "${etc}/conclave")
set(work "${CONCLAVE_BUILD}/dist")

file(GLOB units "${CONCLAVE_SOURCE}/cfg/dist/systemd/*.service")
foreach(unit ${units})
  get_filename_component(name "${unit}" NAME)
  configure_file("${unit}" "${work}/${name}" @ONLY)
  file(INSTALL DESTINATION "${prefix}/lib/systemd/system" TYPE FILE FILES "${work}/${name}")
endforeach()

foreach(name judicator executor gateway standalone)
  set(sample "${CONCLAVE_SOURCE}/cfg/conf/${name}.conf")
  if(name STREQUAL "standalone")
    set(sample "${work}/standalone.sample")
  endif()
  file(READ "${sample}" text)
  if(NOT text MATCHES "\n#user = nobody\n")
    message(FATAL_ERROR "${sample}: has no line '#user = nobody' to put the packaged user in")
  endif()
  string(REPLACE "\n#user = nobody\n" "\nuser = conclave\n" text "${text}")
  file(WRITE "${work}/${name}.conf" "${text}")
  if(NOT EXISTS "$ENV{DESTDIR}${CONFDIR}/${name}.conf")
    file(INSTALL DESTINATION "${CONFDIR}" TYPE FILE FILES "${work}/${name}.conf")
  endif()
endforeach()
