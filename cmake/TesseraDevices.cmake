# The kernels of devices. Files x.cu are compiled as C++ for the emulated device always, by nvcc with
# TESSERA_CUDA, and by clang with TESSERA_HIP.
set(TESSERA_CUDA "AUTO" CACHE STRING "Run on NVIDIA's GPUs: ON, OFF, or AUTO for on where nvcc is found")
set_property(CACHE TESSERA_CUDA PROPERTY STRINGS AUTO ON OFF)


if(TESSERA_CUDA STREQUAL "AUTO")
  set(TESSERA_CUDA OFF)
  if(NOT TESSERA_SANITIZE AND NOT TESSERA_FUZZ)
    find_package(CUDAToolkit 13.0 QUIET)
    set(TESSERA_CUDA ${CUDAToolkit_FOUND})
  endif()
endif()

if(TESSERA_CUDA)
  find_package(CUDAToolkit 13.0 REQUIRED)
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "80;90" CACHE STRING "Compute capabilities that kernels are compiled for")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CUDA_HOST_COMPILER)
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  endif()
  if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know that nvcc has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  target_compile_definitions(tessera_flags INTERFACE TESSERA_CUDA=1)
  # The headers of CUDA, cuBLASLt and cuDNN, for files *_cuda.cpp.
  target_include_directories(tessera_flags SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
endif()
message(STATUS "Kernels for NVIDIA's GPUs: ${TESSERA_CUDA}")

# tessera_nvcc(NAME TARGET ARCHITECTURES capabilities... INCLUDES folders... OPTIONS flags... FILES files...)
# adds files to a target that nvcc compiles. Warnings are errors. clang-tidy cannot read nvcc's options,
# so the files stay out of compile_commands.json.
function(tessera_nvcc name target)
  cmake_parse_arguments(NVCC "" "" "ARCHITECTURES;INCLUDES;OPTIONS;FILES" ${ARGN})
  add_library(${name} OBJECT ${NVCC_FILES})
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF EXPORT_COMPILE_COMMANDS OFF)
  if(NVCC_ARCHITECTURES)
    set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES "${NVCC_ARCHITECTURES}")
  endif()
  target_compile_options(${name} PRIVATE "SHELL:-Werror all-warnings" --expt-relaxed-constexpr ${NVCC_OPTIONS})
  target_compile_definitions(${name} PRIVATE TESSERA_CUDA=1)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(${name} SYSTEM PRIVATE ${NVCC_INCLUDES})
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${name}>)
endfunction()

# tessera_cuda_kernels(TARGET FOLDER ...) adds files *_cuda.cu, which nvcc alone understands, to a target,
# with the arguments of tessera_nvcc. Nothing happens without TESSERA_CUDA. For example
#   tessera_cuda_kernels(tessera_ops grouped_products ARCHITECTURES 90a-real INCLUDES ${CUTLASS}
#     FILES src/ops/moe/grouped_products_cuda.cu)
function(tessera_cuda_kernels target name)
  if(TESSERA_CUDA)
    tessera_nvcc(${target}_cuda_${name} ${target} ${ARGN})
  endif()
endfunction()

# tessera_leave_out_vendors(LIST) removes *_cuda.cpp and *_hip.cpp from a list of files where this build
# does not run on them.
function(tessera_leave_out_vendors list)
  set(files ${${list}})
  if(NOT TESSERA_CUDA)
    list(FILTER files EXCLUDE REGEX "_cuda\\.cpp$")
  endif()
  if(NOT TESSERA_HIP)
    list(FILTER files EXCLUDE REGEX "_hip\\.cpp$")
  endif()
  set(${list} ${files} PARENT_SCOPE)
endfunction()

# tessera_kernels(TARGET FOLDER [EMULATED]) adds the kernels of devices below a folder, *.cu, to a
# target. They are compiled as C++ for the emulated device, once for each size of its warps, and,
# without EMULATED, by the compilers of devices that this build has.
function(tessera_kernels target folder)
  cmake_parse_arguments(KERNELS "EMULATED" "" "" ${ARGN})
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${folder}/*.cu)
  list(FILTER kernels EXCLUDE REGEX "_cuda\\.cu$")
  if(NOT kernels)
    return()
  endif()
  set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX)
  foreach(lanes 32 64)
    set(emulated ${target}_emulated_${lanes})
    add_library(${emulated} OBJECT ${kernels})
    target_compile_options(${emulated} PRIVATE -x c++)
    target_compile_definitions(${emulated} PRIVATE TESSERA_EMULATED_LANES=${lanes})
    target_include_directories(${emulated} PRIVATE $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
    target_link_libraries(${emulated} PRIVATE tessera_flags)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${emulated}>)
  endforeach()
  if(KERNELS_EMULATED)
    return()
  endif()
  if(TESSERA_CUDA)
    tessera_batches(batches ${target} cuda ${kernels})
    tessera_nvcc(${target}_cuda ${target} FILES ${batches})
  endif()
endfunction()

# tessera_batches(RESULT TARGET VENDOR files...) writes files that include the kernels, several each,
# into the build folder: CMake does not do this for languages but C and C++, and most of the time that
# a compiler of a device takes is for its own headers. RESULT is the list of them.
function(tessera_batches result target vendor)
  set(size 1)
  if(TESSERA_UNITY)
    set(size 10)
  endif()
  list(LENGTH ARGN count)
  math(EXPR last "(${count} - 1) / ${size}")
  set(batches)
  foreach(number RANGE ${last})
    math(EXPR begin "${number} * ${size}")
    list(SUBLIST ARGN ${begin} ${size} batch)
    list(TRANSFORM batch REPLACE "(.+)" "#include \"\\1\"\n")
    string(JOIN "" text ${batch})
    set(file ${CMAKE_BINARY_DIR}/${vendor}/${target}_${number}.cu)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    list(APPEND batches ${file})
  endforeach()
  set(${result} ${batches} PARENT_SCOPE)
endfunction()
