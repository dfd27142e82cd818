# Flags that every target of ours shares.
add_library(tessera_flags INTERFACE)
target_compile_options(tessera_flags INTERFACE -Wall -Wextra -Wpedantic -Wno-missing-field-initializers -fno-math-errno -fno-trapping-math)
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
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 20)
  # GCC takes the files of a batch for headers, where anonymous namespaces would be a mistake; and it
  # looks from file to file, where what stands in a std::optional seems to have no value.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(tessera_flags INTERFACE -Wno-subobject-linkage -Wno-maybe-uninitialized)
  endif()
endif()
target_link_libraries(tessera_flags INTERFACE OpenMP::OpenMP_CXX Threads::Threads)
target_include_directories(tessera_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)

# tessera_room(NAME ROOMS below... LIBRARIES public... PRIVATE_LIBRARIES private...)
# builds src/NAME as the static library tessera_NAME.
function(tessera_room name)
  cmake_parse_arguments(ROOM "" "" "ROOMS;LIBRARIES;PRIVATE_LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  if(NOT sources)
    message(FATAL_ERROR "the room src/${name} has no sources")
  endif()
  add_library(tessera_${name} STATIC ${sources})
  target_link_libraries(tessera_${name} PUBLIC tessera_flags ${ROOM_LIBRARIES} PRIVATE ${ROOM_PRIVATE_LIBRARIES})
  foreach(below IN LISTS ROOM_ROOMS)
    target_link_libraries(tessera_${name} PUBLIC tessera_${below})
  endforeach()
endfunction()

# tessera_test(ROOM LIBRARIES linked... OPTIMISED sources...) builds tests/ROOM as the program
# test_ROOM, each of its cases a test of ctest. OPTIMISED are those of its files that test what the
# compiler makes of loops in headers.
function(tessera_test name)
  cmake_parse_arguments(TEST "" "" "LIBRARIES;OPTIMISED" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${name}/*.cpp)
  if(NOT sources)
    message(FATAL_ERROR "tests/${name} has no sources")
  endif()
  add_executable(test_${name} ${sources})
  target_include_directories(test_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  # Tests spend their time in the rooms: optimising them would only make them build slower. So do
  # small batches, as most of the time goes to templates that all files of a room use.
  target_compile_options(test_${name} PRIVATE $<$<CONFIG:Release>:-O0>)
  set_target_properties(test_${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 30)
  foreach(source IN LISTS TEST_OPTIMISED)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/${name}/${source} PROPERTIES
      COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
  endforeach()
  target_link_libraries(test_${name} PRIVATE ${TEST_LIBRARIES} GTest::gtest_main GTest::gmock rapidcheck)
  gtest_discover_tests(test_${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT 300 ENVIRONMENT "OMP_WAIT_POLICY=passive")
endfunction()
