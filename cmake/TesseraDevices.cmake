# The kernels of devices. Files x.cu are compiled as C++ for the emulated device always, by nvcc with
# TESSERA_CUDA, and by clang with TESSERA_HIP.
option(TESSERA_CUDA "Run on NVIDIA's GPUs: compile kernels with nvcc (presets cuda and bundle)" OFF)

if(TESSERA_CUDA)
  find_package(CUDAToolkit 13.0 REQUIRED)
  # The headers of NVIDIA's libraries may be packages beside the toolkit.
  find_path(TESSERA_CUBLASLT_INCLUDE_DIR cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(TESSERA_CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  set(missing)
  if(NOT TESSERA_CUBLASLT_INCLUDE_DIR)
    list(APPEND missing "cublasLt.h is missing (NVIDIA's package libcublas-dev-13-0, Debian's nvidia-cuda-dev)")
  endif()
  if(NOT TESSERA_CUDNN_INCLUDE_DIR)
    list(APPEND missing "cudnn.h is missing (NVIDIA's package cudnn9-cuda-13, Debian's nvidia-cudnn)")
  endif()
  if(missing)
    list(JOIN missing "; " missing)
    message(FATAL_ERROR "TESSERA_CUDA is ON, but ${missing}. Install it, name its folder in CMAKE_INCLUDE_PATH, or set TESSERA_CUDA=OFF.")
  endif()
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
  target_include_directories(tessera_flags SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS}
    ${TESSERA_CUBLASLT_INCLUDE_DIR} ${TESSERA_CUDNN_INCLUDE_DIR})
endif()
message(STATUS "Kernels for NVIDIA's GPUs: ${TESSERA_CUDA}")

option(TESSERA_HIP "Run on AMD's GPUs: compile kernels with clang, link AMD's runtime" OFF)
set(TESSERA_HIP_ARCHITECTURES "gfx90a;gfx942" CACHE STRING "AMD's processors that kernels are compiled for")
if(TESSERA_HIP)
  find_program(TESSERA_HIP_COMPILER NAMES amdclang++ clang++-21 clang++-20 clang++-19 clang++ REQUIRED
    HINTS /opt/rocm/bin)
  find_path(TESSERA_HIP_BITCODE oclc_isa_version_90a.bc REQUIRED PATHS /opt/rocm/amdgcn/bitcode
    /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/amdgcn/bitcode /usr/lib/amdgcn/bitcode)
  find_path(TESSERA_HIP_INCLUDE_DIR hip/hip_runtime_api.h REQUIRED HINTS /opt/rocm/include)
  find_library(TESSERA_HIP_LIBRARY amdhip64 REQUIRED HINTS /opt/rocm/lib)
  # Device libraries of ROCm 5.2 know gfx942 by its forerunner's name.
  set(bitcode ${CMAKE_BINARY_DIR}/hip/bitcode)
  file(MAKE_DIRECTORY ${bitcode})
  file(GLOB libraries ${TESSERA_HIP_BITCODE}/*.bc)
  foreach(library IN LISTS libraries)
    get_filename_component(name ${library} NAME)
    file(CREATE_LINK ${library} ${bitcode}/${name} SYMBOLIC)
  endforeach()
  if(NOT EXISTS ${bitcode}/oclc_isa_version_942.bc)
    file(CREATE_LINK ${TESSERA_HIP_BITCODE}/oclc_isa_version_940.bc ${bitcode}/oclc_isa_version_942.bc SYMBOLIC)
  endif()
  set(TESSERA_HIP_FLAGS -x hip --rocm-device-lib-path=${bitcode} -std=c++20 -O3 -ffp-contract=off -Wall -Wextra -Werror -DTESSERA_HIP=1)
  foreach(architecture IN LISTS TESSERA_HIP_ARCHITECTURES)
    list(APPEND TESSERA_HIP_FLAGS --offload-arch=${architecture})
  endforeach()
  target_compile_definitions(tessera_flags INTERFACE TESSERA_HIP=1 __HIP_PLATFORM_AMD__=1)
  target_include_directories(tessera_flags SYSTEM INTERFACE ${TESSERA_HIP_INCLUDE_DIR})
  add_custom_target(tessera_hip)  # all that is compiled for AMD's GPUs
endif()

# tessera_clang_hip(TARGET files...) adds files to a target that clang compiles for AMD's GPUs. CMake's own
# support of HIP needs files that Debian does not bring.
function(tessera_clang_hip target)
  foreach(file ${ARGN})
    set(object ${file}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${TESSERA_HIP_COMPILER} ${TESSERA_HIP_FLAGS}
        -I${CMAKE_SOURCE_DIR}/src -idirafter ${TESSERA_HIP_INCLUDE_DIR} -MD -MT ${object} -MF ${object}.d -c ${file} -o ${object}
      DEPENDS ${file} DEPFILE ${object}.d JOB_POOL compile VERBATIM COMMENT "Building HIP object ${object}")
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    list(APPEND objects ${object})
  endforeach()
  target_sources(${target} PRIVATE ${objects})
  add_custom_target(${target}_hip DEPENDS ${objects})
  add_dependencies(tessera_hip ${target}_hip)
endfunction()

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

# tessera_leave_out_vendors(LIST) removes *_cuda.cpp, *_hip.cpp, *_mpi.cpp and *_hwloc.cpp from a list of files
# where this build does not use them, and what stands in for MPI and hwloc where it does.
function(tessera_leave_out_vendors list)
  set(files ${${list}})
  if(NOT TESSERA_CUDA)
    list(FILTER files EXCLUDE REGEX "_cuda\\.cpp$")
  endif()
  if(NOT TESSERA_HIP)
    list(FILTER files EXCLUDE REGEX "_hip\\.cpp$")
  endif()
  if(TESSERA_MPI)
    list(FILTER files EXCLUDE REGEX "/mpi_is_missing\\.cpp$")
  else()
    list(FILTER files EXCLUDE REGEX "_mpi\\.cpp$")
  endif()
  if(TESSERA_HWLOC)
    list(FILTER files EXCLUDE REGEX "/hwloc_is_missing\\.cpp$")
  else()
    list(FILTER files EXCLUDE REGEX "_hwloc\\.cpp$")
  endif()
  set(${list} ${files} PARENT_SCOPE)
endfunction()

# A compiler may take a product and a sum for one operation, and round once, wherever it likes. Then two
# instances of one kernel differ in their bits, and a recomputed norm from the first one. So kernels
# round as they are written, and say fmaf() where they mean it.

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
    # Their tests spend the time in changing from thread to thread: -O3 makes them 3 % faster.
    target_compile_options(${emulated} PRIVATE -x c++ -ffp-contract=off $<$<CONFIG:Release>:-O1>)
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
    tessera_nvcc(${target}_cuda ${target} OPTIONS --fmad=false FILES ${batches})
  endif()
  if(TESSERA_HIP)
    tessera_batches(batches ${target} hip ${kernels})
    tessera_clang_hip(${target} ${batches})
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
