# One compiler a core: ninja starts two more, which take the cache from each other.
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
set_property(GLOBAL PROPERTY JOB_POOLS compile=${cores})
set(CMAKE_JOB_POOL_COMPILE compile)

# Flags that every target of ours shares.
add_library(tessera_flags INTERFACE)
target_compile_options(tessera_flags INTERFACE -Wall -Wextra -Wpedantic -Werror=switch -Wno-missing-field-initializers -fno-math-errno -fno-trapping-math)
if(TESSERA_ARCHITECTURE)
  target_compile_options(tessera_flags INTERFACE -march=${TESSERA_ARCHITECTURE})
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    target_compile_options(tessera_flags INTERFACE -mprefer-vector-width=512)
  endif()
endif()
if(TESSERA_SANITIZE)
  target_compile_options(tessera_flags INTERFACE -fsanitize=${TESSERA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(tessera_flags INTERFACE -fsanitize=${TESSERA_SANITIZE})
endif()
if(TESSERA_FUZZ)
  target_compile_options(tessera_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(TESSERA_UNITY)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 64)
  # GCC takes the files of a batch for headers, where anonymous namespaces would be a mistake; and it
  # looks from file to file, where what stands in a std::optional seems to have no value.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(tessera_flags INTERFACE -Wno-subobject-linkage -Wno-maybe-uninitialized)
    # GCC searches its memory for what it may reuse from 1 GiB on only: a batch needs little more.
    target_compile_options(tessera_flags INTERFACE "SHELL:--param ggc-min-heapsize=1048576")
  endif()
endif()
target_link_libraries(tessera_flags INTERFACE OpenMP::OpenMP_CXX Threads::Threads)
target_include_directories(tessera_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)

include(TesseraDevices)
include(TesseraMpi)
include(TesseraHwloc)

# tessera_room(NAME ROOMS below... LIBRARIES public... PRIVATE_LIBRARIES private...)
# builds src/NAME as the static library tessera_NAME.
function(tessera_room name)
  cmake_parse_arguments(ROOM "" "" "ROOMS;LIBRARIES;PRIVATE_LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  tessera_leave_out_vendors(sources)
  if(NOT sources)
    message(FATAL_ERROR "the room src/${name} has no sources")
  endif()
  add_library(tessera_${name} STATIC ${sources})
  target_link_libraries(tessera_${name} PUBLIC tessera_flags ${ROOM_LIBRARIES} PRIVATE ${ROOM_PRIVATE_LIBRARIES})
  foreach(below IN LISTS ROOM_ROOMS)
    target_link_libraries(tessera_${name} PUBLIC tessera_${below})
  endforeach()
  set_property(TARGET tessera_${name} PROPERTY TESSERA_ROOMS_BELOW ${ROOM_ROOMS})
  tessera_kernels(tessera_${name} ${CMAKE_SOURCE_DIR}/src/${name})
endfunction()

# tessera_link_rooms_first(PROGRAM LIBRARIES...) puts the rooms among the libraries, and all rooms below them, before the
# program's own objects. The linker keeps the first definition of an inline function that it finds. The program's own
# objects are not optimised, so with theirs the rooms would run the standard library twice as slowly. The room comm
# stays behind: programs that start no processes are linked without the library of MPI.
function(tessera_link_rooms_first program)
  set(rooms)
  set(reached ${ARGN})
  list(FILTER reached INCLUDE REGEX "^tessera_")
  while(reached)
    list(APPEND rooms ${reached})
    set(below)
    foreach(room IN LISTS reached)
      get_property(names TARGET ${room} PROPERTY TESSERA_ROOMS_BELOW)
      list(TRANSFORM names PREPEND tessera_)
      list(APPEND below ${names})
    endforeach()
    set(reached ${below})
  endwhile()
  # A room that several others need comes after all of them.
  list(REVERSE rooms)
  list(REMOVE_DUPLICATES rooms)
  list(REVERSE rooms)
  list(REMOVE_ITEM rooms tessera_comm)
  list(TRANSFORM rooms REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  target_link_options(${program} PRIVATE LINKER:--whole-archive ${rooms} LINKER:--no-whole-archive)
endfunction()

# tessera_keep_device_tests(LIST) leaves in a list of files below tests/ those whose tests run on GPUs, and those whose
# headers these include. A list without any stays as it is: nothing that is bundled is built of it.
function(tessera_keep_device_tests list)
  set(kept)
  set(includes)
  foreach(pass RANGE 1 2)
    foreach(file IN LISTS ${list})
      file(RELATIVE_PATH header ${CMAKE_SOURCE_DIR}/tests ${file})
      string(REGEX REPLACE "\\.cpp$" ".h" header ${header})
      file(STRINGS ${file} lines REGEX "^#include \"")
      if(pass EQUAL 1 AND (file MATCHES "_cuda\\.cpp$" OR lines MATCHES "support/(emulated|tested_devices)\\.h"))
        list(APPEND kept ${file})
        list(APPEND includes ${lines})
      elseif(pass EQUAL 2 AND "#include \"${header}\"" IN_LIST includes)
        list(APPEND kept ${file})
      endif()
    endforeach()
  endforeach()
  if(kept)
    list(REMOVE_DUPLICATES kept)
    set(${list} ${kept} PARENT_SCOPE)
  endif()
endfunction()

# tessera_test(ROOM LIBRARIES linked... OPTIMISED sources... ONE_AT_A_TIME suites...) builds tests/ROOM as
# the program test_ROOM, each of its cases a test of ctest. OPTIMISED are those of its files that test what the
# compiler makes of loops in headers, or whose own definitions take long. ONE_AT_A_TIME are the suites that
# start more processes than there are cores: beside one another they would wait for each other's turns. These
# start first (COST), beside all others: at the end they would leave cores idle. The longest rooms come next.
function(tessera_test name)
  cmake_parse_arguments(TEST "" "" "LIBRARIES;OPTIMISED;ONE_AT_A_TIME" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${name}/*.cpp)
  tessera_leave_out_vendors(sources)
  if(NOT sources)
    message(FATAL_ERROR "tests/${name} has no sources")
  endif()
  if(TESSERA_TESTS STREQUAL "DEVICES")
    tessera_keep_device_tests(sources)
  endif()
  add_executable(test_${name} ${sources})
  target_include_directories(test_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  # Where fixtures and documents lie.
  target_compile_definitions(test_${name} PRIVATE TESSERA_SOURCE="${TESSERA_TEST_FOLDER}")
  # Tests spend their time in the rooms (see tessera_link_rooms_first()): optimising the tests would only make them build
  # slower.
  target_compile_options(test_${name} PRIVATE -O0)
  # The headers of GoogleTest and RapidCheck are compiled once, for all tests. Each file includes what it needs
  # nevertheless: a build without unity has no such headers.
  get_property(programs GLOBAL PROPERTY TESSERA_TEST_PROGRAMS)
  if(TESSERA_UNITY AND programs)
    list(GET programs 0 first)
    target_precompile_headers(test_${name} REUSE_FROM ${first})
  elseif(TESSERA_UNITY)
    target_precompile_headers(test_${name} PRIVATE <gmock/gmock.h> <gtest/gtest.h> <rapidcheck.h> <rapidcheck/gtest.h>
      <fmt/format.h> <nlohmann/json.hpp> <filesystem> <fstream> <map> <thread>)
  endif()
  foreach(source IN LISTS TEST_OPTIMISED)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/${name}/${source} PROPERTIES
      COMPILE_OPTIONS $<IF:$<CONFIG:Release>,-O3,-O1> SKIP_PRECOMPILE_HEADERS ON)
  endforeach()
  tessera_kernels(test_${name} ${CMAKE_SOURCE_DIR}/tests/${name} EMULATED)
  target_link_libraries(test_${name} PRIVATE ${TEST_LIBRARIES} GTest::gtest_main GTest::gmock rapidcheck)
  tessera_link_rooms_first(test_${name} ${TEST_LIBRARIES})
  set_property(GLOBAL APPEND PROPERTY TESSERA_TEST_PROGRAMS test_${name})
  set(discovery TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60)
  set(properties TIMEOUT 300 ENVIRONMENT "OMP_WAIT_POLICY=passive")
  if(name MATCHES "^(cli|train|verify|ops)$")
    list(APPEND properties COST 100)
  endif()
  if(NOT TEST_ONE_AT_A_TIME)
    gtest_discover_tests(test_${name} ${discovery} PROPERTIES ${properties})
    return()
  endif()
  list(TRANSFORM TEST_ONE_AT_A_TIME APPEND ".*")
  list(JOIN TEST_ONE_AT_A_TIME ":" alone)
  gtest_discover_tests(test_${name} ${discovery} TEST_FILTER "-${alone}" TEST_LIST ${name}_beside
    PROPERTIES ${properties})
  gtest_discover_tests(test_${name} ${discovery} TEST_FILTER "${alone}" TEST_LIST ${name}_alone
    PROPERTIES ${properties} RESOURCE_LOCK processes COST 1000)
endfunction()
