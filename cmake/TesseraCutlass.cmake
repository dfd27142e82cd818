# Products of experts in bf16 on NVIDIA's Hopper are kernels of CUTLASS, which is headers alone.
# `scripts/setup cuda` puts them where they are found here. A build without them refuses such products
# when they are to run. Each of the files takes nvcc most of a minute and 3.5 GB.
if(TESSERA_CUDA)
  set(tessera_cache "$ENV{XDG_CACHE_HOME}")
  if(NOT tessera_cache)
    set(tessera_cache "$ENV{HOME}/.cache")
  endif()
  find_path(TESSERA_CUTLASS cutlass/gemm/group_array_problem_shape.hpp
    PATHS "${tessera_cache}/tessera/cutlass-4.2.0/include" NO_DEFAULT_PATH
    DOC "Folder of CUTLASS's headers (cutlass/ and cute/); empty for none")
  if(TESSERA_CUTLASS)
    file(STRINGS ${TESSERA_CUTLASS}/cutlass/version.h version REGEX "^#define CUTLASS_(MAJOR|MINOR) ")
    string(REGEX REPLACE "[^0-9;]" "" version "${version}")
    string(REPLACE ";" "." version "${version}")
    if(version VERSION_LESS 4.2 OR version VERSION_GREATER_EQUAL 5)
      message(FATAL_ERROR "TESSERA_CUTLASS has CUTLASS ${version}; 4.2 is expected: run scripts/setup cuda")
    endif()
    set(products forward input_gradient wide_input_gradient weight_gradient)
    list(TRANSFORM products REPLACE "(.+)" "src/ops/moe/cutlass_\\1_cuda.cu")
    tessera_cuda_kernels(tessera_ops cutlass ARCHITECTURES 90a-real INCLUDES ${TESSERA_CUTLASS} FILES ${products})
    target_compile_definitions(tessera_ops PRIVATE TESSERA_CUTLASS=1)
  endif()
  message(STATUS "CUTLASS's headers: ${TESSERA_CUTLASS}")
endif()
