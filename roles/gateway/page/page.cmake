# SPDX-License-Identifier: Apache-2.0
# The files of the web page become a constant table in the roles' library, so that a gateway needs no files to serve it.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
file(GLOB PAGE_ASSETS CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.html ${CMAKE_CURRENT_LIST_DIR}/*.css
  ${CMAKE_CURRENT_LIST_DIR}/*.js ${CMAKE_CURRENT_LIST_DIR}/*.svg)
set(PAGE_TABLE ${CMAKE_BINARY_DIR}/page_assets.c)
add_custom_command(OUTPUT ${PAGE_TABLE} DEPENDS ${PAGE_ASSETS} ${CMAKE_CURRENT_LIST_DIR}/embed VERBATIM
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/embed ${PAGE_TABLE} ${PAGE_ASSETS})
target_sources(conclave_roles PRIVATE ${PAGE_TABLE})
