# Processes on several machines meet by MPI. Files *_mpi.cpp are compiled where it is found.
set(TESSERA_MPI "AUTO" CACHE STRING "Run as several processes by MPI: ON, OFF, or AUTO for on where it is found")
set_property(CACHE TESSERA_MPI PROPERTY STRINGS AUTO ON OFF)

set(MPI_CXX_SKIP_MPICXX ON)  # the interface of C alone
if(TESSERA_MPI STREQUAL "AUTO")
  set(TESSERA_MPI OFF)
  if(NOT TESSERA_FUZZ)
    find_package(MPI 3.1 QUIET COMPONENTS CXX)
    if(MPI_CXX_FOUND)
      set(TESSERA_MPI ON)
    endif()
  endif()
elseif(TESSERA_MPI)
  find_package(MPI 3.1 REQUIRED COMPONENTS CXX)
endif()
message(STATUS "Processes by MPI: ${TESSERA_MPI}")
