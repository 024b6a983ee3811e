# What `cmake --install` installs besides what targets install themselves, and the Debian
# packages that `cpack` makes. Components: program, mpi, development.
include(CMakePackageConfigHelpers)

# What is built is installed: a package needs no tests.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/isoloss)
install(EXPORT isoloss NAMESPACE isoloss:: FILE isolossTargets.cmake
  DESTINATION ${config_dir} COMPONENT development)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/isolossConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/isolossConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/isolossConfig.cmake
  ${CMAKE_CURRENT_LIST_DIR}/isolossDependencies.cmake
  DESTINATION ${config_dir} COMPONENT development)

# The experiments of the documents, and the goldens that `isoloss golden check` and verdicts read.
install(DIRECTORY experiments DESTINATION share/isoloss COMPONENT program)
install(DIRECTORY golden/curves golden/ensembles DESTINATION share/isoloss/golden COMPONENT program)
install(FILES golden/preset_gate.toml golden/suite_gate.toml
  DESTINATION share/isoloss/golden COMPONENT program)
install(FILES LICENSE DESTINATION share/doc/isoloss RENAME copyright COMPONENT program)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "isoloss maintainers <maintainers@isoloss.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENTS_ALL program)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME isoloss)
# The experiments train on the text of these headers.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS libeigen3-dev)
# A package of its own, since it depends on the MPI libraries.
if(openmpi_FOUND OR mpich_FOUND)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
  set(CPACK_DEBIAN_MPI_PACKAGE_NAME isoloss-mpi)
  set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "isoloss (= ${PROJECT_VERSION}-1)")
  set(CPACK_COMPONENT_MPI_DESCRIPTION "isoloss in several MPI processes: its modules for Open MPI and MPICH")
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS isoloss-mpi)
endif()
include(CPack)
