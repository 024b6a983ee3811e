# find_package(isoloss): the libraries isoloss::base to isoloss::sweeps. The project's
# languages are C, with which HDF5 is found, and CXX.
set(isoloss_FOUND TRUE)
include(${CMAKE_CURRENT_LIST_DIR}/isolossDependencies.cmake)
if(isoloss_FOUND)
  include(${CMAKE_CURRENT_LIST_DIR}/isolossTargets.cmake)
endif()
