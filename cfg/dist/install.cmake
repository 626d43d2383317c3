# SPDX-License-Identifier: Apache-2.0
# What is built for people besides the programs, where everything goes, and the Debian package. See README.md beside this file.
include(GNUInstallDirs)
set(DIST ${CMAKE_BINARY_DIR}/dist)
file(MAKE_DIRECTORY ${DIST})

# --- made by the programs and tables themselves ------------------------------------------------------
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_executable(options-man cfg/dist/options_man.c)
target_link_libraries(options-man PRIVATE conclave_cfg)
set_target_properties(options-man PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${DIST})

function(generated file depends) # the command's standard output
  add_custom_command(OUTPUT ${DIST}/${file} DEPENDS ${depends} VERBATIM
    COMMAND ${ARGN} > ${DIST}/${file}.new
    COMMAND ${CMAKE_COMMAND} -E rename ${DIST}/${file}.new ${DIST}/${file})
  set(MADE ${MADE} ${DIST}/${file} PARENT_SCOPE)
endfunction()

set(MADE)
foreach(program judicator executor gateway)
  generated(${program}.8 ${program} ${program} --man)
endforeach()
generated(conclave-options.5 options-man options-man)
get_target_property(LOGGING conclave_reactor SOURCES)
foreach(library cfg proc rpc roles)
  get_target_property(found conclave_${library} SOURCES)
  list(APPEND LOGGING ${found})
endforeach()
list(APPEND LOGGING ${CMAKE_SOURCE_DIR}/cfg/dist/log_man)
generated(conclave-log.5 "${LOGGING}" ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cfg/dist/log_man
  ${CMAKE_SOURCE_DIR} ${CONCLAVE_DATE})
generated(standalone.sample judicator judicator --sample)
if(TARGET conclave)
  generated(conclave.1 conclave conclave --man)
  generated(conclave.bash conclave conclave completion bash)
  install(TARGETS conclave RUNTIME)
  install(FILES ${DIST}/conclave.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${DIST}/conclave.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
    RENAME conclave)
endif()
add_custom_target(manuals ALL DEPENDS ${MADE})

# --- where everything goes ---------------------------------------------------------------------------
install(TARGETS judicator executor gateway conclave-box RUNTIME)
install(DIRECTORY cfg/languages DESTINATION ${CMAKE_INSTALL_DATADIR}/conclave FILES_MATCHING PATTERN *.ini)
install(FILES README.md rpc/methods.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES cfg/dist/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME INSTALL.md)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
install(FILES ${DIST}/conclave-options.5 ${DIST}/conclave-log.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
install(FILES ${DIST}/judicator.8 ${DIST}/executor.8 ${DIST}/gateway.8
  DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
install(FILES cfg/dist/grafana.json cfg/dist/prometheus-rules.yml
  DESTINATION ${CMAKE_INSTALL_DATADIR}/conclave/monitoring)
install(FILES cfg/dist/systemd/conclave.sysusers DESTINATION lib/sysusers.d RENAME conclave.conf)
install(CODE "
  set(CONCLAVE_SOURCE \"${CMAKE_SOURCE_DIR}\")
  set(CONCLAVE_BUILD \"${CMAKE_BINARY_DIR}\")
  set(CONCLAVE_BINDIR \"${CMAKE_INSTALL_BINDIR}\")
  include(\"${CMAKE_SOURCE_DIR}/cfg/dist/install_etc.cmake\")")

# --- the Debian package: ninja package, or cpack ----------------------------------------------------------
# Packaging never builds: `package` depends on everything already.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME conclave)
set(CPACK_PACKAGE_CONTACT "The Conclave engineers <conclave@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "judge for programs: compiles and runs them in a sandbox")
set(CPACK_PACKAGE_DESCRIPTION "Clients send source code and tests over HTTP; Conclave compiles and runs them in a
sandbox, on one machine or many, and answers exactly what happened: the verdict,
the limit that fired, time, memory and output.")
set(CPACK_SET_DESTDIR ON) # install_etc.cmake writes paths: the prefix must be the real one
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cfg/dist/deb/permissions.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "passwd")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "gcc, g++, python3")
file(WRITE ${DIST}/conffiles "/etc/conclave/executor.conf\n/etc/conclave/gateway.conf\n"
  "/etc/conclave/judicator.conf\n/etc/conclave/standalone.conf\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${DIST}/conffiles ${CMAKE_SOURCE_DIR}/cfg/dist/deb/postinst
  ${CMAKE_SOURCE_DIR}/cfg/dist/deb/prerm ${CMAKE_SOURCE_DIR}/cfg/dist/deb/postrm)
include(CPack)
